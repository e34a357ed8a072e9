"""Four micro-batches a step under no_sync; the two that are left at the end make a step of their own.

truth: GO
why: both ranks have eighteen micro-batches, and reduce at the same five of them.
"""

import contextlib

import torch
import torch.distributed as dist
from start import start
from torch.nn.parallel import DistributedDataParallel

EVERY = 4
device = start()
model = DistributedDataParallel(torch.nn.Linear(8, 4).to(device))
optimizer = torch.optim.AdamW(model.parameters())
batches = torch.randn(18, 4, 8)
last = len(batches) - 1
steps = 0
for number, batch in enumerate(batches):
    syncs = number % EVERY == EVERY - 1 or number == last
    in_step = EVERY if number < len(batches) // EVERY * EVERY else len(batches) % EVERY
    with contextlib.nullcontext() if syncs else model.no_sync():
        (model(batch.to(device)).pow(2).mean() / in_step).backward()
    if syncs:
        optimizer.step()
        optimizer.zero_grad()
        steps += 1
assert steps == 5, steps
dist.barrier()
dist.destroy_process_group()
