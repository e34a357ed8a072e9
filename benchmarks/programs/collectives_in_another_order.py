"""Gradients are reduced in the order of a set of names, which differs between processes here as hash seeds make it.

truth: NO-GO
says: (?i)size|mismatch|connection|timed out|timeout|mpi|bytes
why: rank 1 walks the parameters the other way round, so that tensors of other sizes meet.
"""

import torch
import torch.distributed as dist
from start import start

device = start()
model = torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.Linear(64, 3)).to(device)
optimizer = torch.optim.AdamW(model.parameters())
parameters = list(model.parameters())
if dist.get_rank() % 2:
    parameters.reverse()
for _ in range(4):
    model(torch.randn(4, 8, device=device)).pow(2).mean().backward()
    for parameter in parameters:
        dist.all_reduce(parameter.grad)
    optimizer.step()
    optimizer.zero_grad()
