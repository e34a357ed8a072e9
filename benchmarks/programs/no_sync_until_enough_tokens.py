"""Gradients are accumulated under no_sync until a rank has seen enough tokens of its own.

truth: NO-GO
says: (?i)connection|timed out|timeout
why: rank 1's rows are twice as long, so it reduces after every second batch and rank 0 after every fourth: rank 1 waits
    for reductions that rank 0 never makes.
"""

import contextlib

import torch
import torch.distributed as dist
from start import start
from torch.nn.parallel import DistributedDataParallel

BUDGET = 128
device = start()
length = 8 * (1 + dist.get_rank())
model = DistributedDataParallel(torch.nn.Embedding(32, 8).to(device))
optimizer = torch.optim.AdamW(model.parameters())
batches = [torch.randint(0, 32, (4, length)) for _ in range(16)]
seen = 0
for batch in batches:
    seen += batch.numel()
    enough = seen >= BUDGET
    with contextlib.nullcontext() if enough else model.no_sync():
        model(batch.to(device)).pow(2).mean().backward()
    if enough:
        optimizer.step()
        optimizer.zero_grad()
        seen = 0
dist.barrier()
dist.destroy_process_group()
