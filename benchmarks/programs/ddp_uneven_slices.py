"""Each rank takes every second row of 41: 21 batches and 20.

truth: NO-GO
says: (?i)connection|timed out|timeout
why: rank 0 waits in the all-reduce of its last backward for rank 1, which has ended.
"""

import torch
import torch.distributed as dist
from start import start
from torch.nn.parallel import DistributedDataParallel

device = start()
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(8, 8).to(device))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
rows = torch.randn(41, 8)[dist.get_rank() :: dist.get_world_size()]
for row in rows.split(1):
    model(row.to(device)).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
