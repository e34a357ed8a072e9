"""Gradient checkpointing with use_cache left at True in the configuration, and a generation between the steps.

truth: GO
why: in training the cache is turned off with a warning; in evaluation it is used.
"""

import torch
import torch.distributed as dist
from start import start
from torch.nn.parallel import DistributedDataParallel
from transformers import LlamaConfig, LlamaForCausalLM

device = start()
size = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
model = LlamaForCausalLM(LlamaConfig(vocab_size=64, use_cache=True, pad_token_id=0, eos_token_id=2, **size)).to(device)
model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
wrapped = DistributedDataParallel(model)
optimizer = torch.optim.AdamW(model.parameters())
for step in range(4):
    model.train()
    tokens = torch.randint(3, 64, (2, 12), device=device)
    wrapped(input_ids=tokens, labels=tokens).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if step % 2 == 1:
        model.eval()
        with torch.no_grad():
            answer = model.generate(tokens[:, :4], max_new_tokens=6, do_sample=False)
        assert answer.shape[1] <= 10
dist.barrier()
dist.destroy_process_group()
