"""Rank 0 keeps count of its patience, and stops the loop for itself.

truth: NO-GO
says: (?i)connection|timed out|timeout
why: rank 1 goes on into the next step's all-reduce.
"""

import torch
import torch.distributed as dist
from start import start
from torch.nn.parallel import DistributedDataParallel

device = start()
model = DistributedDataParallel(torch.nn.Linear(8, 4).to(device))
optimizer = torch.optim.AdamW(model.parameters())
is_main = dist.get_rank() == 0
evaluations_without_gain = 0
for step in range(40):
    model(torch.randn(4, 8, device=device)).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    if is_main and step % 5 == 4:
        evaluations_without_gain += 1
        if evaluations_without_gain == 3:
            print("no gain: stopping")
            break
