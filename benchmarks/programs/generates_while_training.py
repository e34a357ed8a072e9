"""Every tenth step samples from the module below DDP, on all ranks.

truth: GO
why: generate takes no collective, so the ranks may stop at different lengths.
"""

import torch
import torch.distributed as dist
from start import start
from torch.nn.parallel import DistributedDataParallel
from transformers import GPT2Config, GPT2LMHeadModel

device = start()
config = GPT2Config(vocab_size=64, n_embd=16, n_layer=2, n_head=2, n_positions=64, bos_token_id=1, eos_token_id=2)
model = DistributedDataParallel(GPT2LMHeadModel(config).to(device))
optimizer = torch.optim.AdamW(model.parameters())
for step in range(20):
    tokens = torch.randint(3, 64, (2, 12), device=device)
    model(input_ids=tokens, labels=tokens).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if step % 10 == 9:
        model.eval()
        with torch.no_grad():
            sampled = model.module.generate(tokens[:1, :4], do_sample=True, max_new_tokens=8, pad_token_id=0)
        assert sampled.shape[1] <= 12
        model.train()
dist.destroy_process_group()
