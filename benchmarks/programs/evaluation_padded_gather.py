"""Evaluation rows of two lengths, padded to the longest of all ranks before they are gathered.

truth: GO
why: all ranks gather tensors of one size, which an all-reduce has told them.
"""

import torch
import torch.distributed as dist
from start import start
from torch.nn.parallel import DistributedDataParallel

device = start()
rank = dist.get_rank()
model = DistributedDataParallel(torch.nn.Linear(8, 4).to(device))
optimizer = torch.optim.AdamW(model.parameters())
for step in range(12):
    model(torch.randn(4, 8, device=device)).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    if step % 4 == 3:
        model.eval()
        with torch.no_grad():
            scores = model.module(torch.randn(5 + rank, 8, device=device))
        length = torch.tensor(scores.shape[0], device=device)
        dist.all_reduce(length, op=dist.ReduceOp.MAX)
        padded = torch.zeros(int(length), 4, device=device)
        padded[: scores.shape[0]] = scores
        every = [torch.empty_like(padded) for _ in range(dist.get_world_size())]
        dist.all_gather(every, padded)
        if rank == 0:
            print(step, torch.cat(every).mean().item())
        model.train()
dist.destroy_process_group()
