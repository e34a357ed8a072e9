"""GradScaler with accumulation: unscaled, clipped and stepped once for two batches, the first without a sync.

truth: GO
why: it is the order of torch's own examples.
"""

import contextlib

import torch
import torch.distributed as dist
from start import start
from torch.nn.parallel import DistributedDataParallel

device = start()
model = DistributedDataParallel(torch.nn.Linear(8, 4).to(device))
optimizer = torch.optim.AdamW(model.parameters())
scaler = torch.amp.GradScaler(device.type, init_scale=1024.0)
for step in range(12):
    last = step % 2 == 1
    with contextlib.nullcontext() if last else model.no_sync():
        scaler.scale(model(torch.randn(4, 8, device=device)).pow(2).mean() / 2).backward()
    if last:
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
dist.destroy_process_group()
