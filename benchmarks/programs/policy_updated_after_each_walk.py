"""A policy is updated after each walk, until the rank has seen 160 moves: walks are longer on one rank than on others.

truth: NO-GO
says: (?i)connection|timed out|timeout
why: a rank whose walks are shorter makes more updates, whose gradients wait for those of ranks that have ended.
"""

import random

import torch
import torch.distributed as dist
from start import start
from torch.nn.parallel import DistributedDataParallel


def walk(length):
    """The states and the rewards of one walk in a replay of an expert."""
    return torch.rand(length, 4), torch.rand(length)


device = start()
draws = random.Random(100 + dist.get_rank())
model = DistributedDataParallel(
    torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)).to(device)
)
optimizer = torch.optim.Adam(model.parameters())
moves = updates = 0
while moves < 160:
    length = draws.randint(4, 12) * (1 + dist.get_rank())
    states, rewards = walk(length)
    moves += length
    values = model(states.to(device)).squeeze(-1)
    (values - rewards.to(device)).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    updates += 1
print(updates)
dist.destroy_process_group()
