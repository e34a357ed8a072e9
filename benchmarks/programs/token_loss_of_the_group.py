"""The loss is divided by the tokens of all ranks, and a step whose gradients are not finite is left out by all.

truth: GO
why: both decisions are made of values that an all-reduce has made equal.
"""

import math

import torch
import torch.distributed as dist
from start import start
from torch.nn.parallel import DistributedDataParallel

device = start()
model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Embedding(100, 16), torch.nn.Linear(16, 100)).to(device))
optimizer = torch.optim.AdamW(model.parameters())
for step in range(20):
    tokens = torch.randint(0, 100, (2, 6 + dist.get_rank() + step % 3), device=device)
    count = torch.tensor(float(tokens[:, 1:].numel()), device=device)
    dist.all_reduce(count)
    logits = model(tokens)[:, :-1].flatten(0, 1)
    loss = torch.nn.functional.cross_entropy(logits, tokens[:, 1:].flatten(), reduction="sum")
    (loss * dist.get_world_size() / count).backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    if math.isfinite(norm.item()):
        optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
