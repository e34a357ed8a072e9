"""A thread of each rank sums up how many rows were seen, on a group of its own, while the main thread trains.

truth: GO
why: each rank's thread makes the same number of reductions, and on a group that the training does not use.
"""

import threading

import torch
import torch.distributed as dist
from start import start
from torch.nn.parallel import DistributedDataParallel

device = start()
counting = dist.new_group(backend="gloo")
totals = []


def count():
    for reading in range(5):
        seen = torch.tensor([reading + 1.0])
        dist.all_reduce(seen, group=counting)
        totals.append(seen.item())


thread = threading.Thread(target=count)
model = DistributedDataParallel(torch.nn.Linear(8, 4).to(device))
optimizer = torch.optim.AdamW(model.parameters())
thread.start()
for _ in range(20):
    model(torch.randn(4, 8, device=device)).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
thread.join()
assert len(totals) == 5, totals
dist.barrier()
dist.destroy_process_group()
