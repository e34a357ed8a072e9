"""Both ranks make the folder of the checkpoints, without exist_ok, before rank 0 saves into it.

truth: NO-GO
ranks: 2
says: FileExistsError
why: the barrier brings both to os.makedirs, the second finds the folder there.
"""

import os
import time

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
dist.barrier()
time.sleep(rank)
os.makedirs("checkpoints/last")
if rank == 0:
    torch.save(model.module.state_dict(), "checkpoints/last/model.pt")
dist.barrier()
dist.destroy_process_group()
