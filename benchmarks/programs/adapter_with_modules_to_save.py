"""LoRA with a head in modules_to_save, under DDP, merged and saved at the end.

truth: GO
why: the frozen base takes no part in DDP; the merge is on rank 0 alone and calls no collective.
"""

import torch
import torch.distributed as dist
from peft import LoraConfig, get_peft_model
from start import start
from torch.nn.parallel import DistributedDataParallel
from transformers import LlamaConfig, LlamaForSequenceClassification

device = start()
size = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
base = LlamaForSequenceClassification(LlamaConfig(vocab_size=64, pad_token_id=0, num_labels=2, **size))
adapted = get_peft_model(base, LoraConfig(task_type="SEQ_CLS", target_modules=["q_proj"], modules_to_save=["score"]))
model = DistributedDataParallel(adapted.to(device))
optimizer = torch.optim.AdamW([value for value in model.parameters() if value.requires_grad])
for _ in range(12):
    tokens = torch.randint(1, 64, (2, 12), device=device)
    model(input_ids=tokens, labels=torch.tensor([0, 1], device=device)).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
if dist.get_rank() == 0:
    model.module.save_pretrained("adapter")
    model.module.merge_and_unload().save_pretrained("merged")
dist.barrier()
dist.destroy_process_group()
