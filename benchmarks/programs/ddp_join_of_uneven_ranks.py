"""Ranks with 21 and 20 batches, under DDP's own context for uneven inputs.

truth: GO
why: Join shadows the collectives of the rank that has ended.
"""

import torch
import torch.distributed as dist
from start import start
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

device = start()
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(8, 8).to(device))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
rows = torch.randn(41, 8)[dist.get_rank() :: 2]
with Join([model]):
    for row in rows.split(1):
        model(row.to(device)).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
dist.barrier()
dist.destroy_process_group()
