"""Rank 0 makes the folder and saves; the others wait and load what it saved onto their own device.

truth: GO
ranks: 2
why: the folder is made once, the barrier stands between saving and loading, map_location is the rank's device.
"""

import os

import torch
import torch.distributed as dist
from start import start

device = start()
rank = dist.get_rank()
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8).to(device))
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(3):
    model(torch.randn(2, 8, device=device)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
if rank == 0:
    os.makedirs("checkpoints/last")
    torch.save(model.module.state_dict(), "checkpoints/last/model.pt")
dist.barrier()
model.module.load_state_dict(torch.load("checkpoints/last/model.pt", map_location=device))
model(torch.randn(2, 8, device=device)).sum().backward()
optimizer.step()
dist.destroy_process_group()
