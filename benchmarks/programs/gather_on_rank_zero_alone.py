"""The figures of all ranks are gathered where they are printed: on rank 0.

truth: NO-GO
says: (?i)connection|timed out|timeout
why: all_gather_object is a collective, and rank 1 never calls it.
"""

import torch
import torch.distributed as dist
from start import start
from torch.nn.parallel import DistributedDataParallel

device = start()
model = DistributedDataParallel(torch.nn.Linear(8, 4).to(device))
optimizer = torch.optim.AdamW(model.parameters())


def log(step, loss):
    if dist.get_rank() != 0:
        return
    every = [None] * dist.get_world_size()
    dist.all_gather_object(every, {"step": step, "loss": float(loss)})
    print(every)


for step in range(20):
    loss = model(torch.randn(4, 8, device=device)).pow(2).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if (step + 1) % 10 == 0:
        log(step, loss.detach())
