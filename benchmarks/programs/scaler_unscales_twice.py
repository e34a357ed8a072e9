"""Gradients are unscaled for clipping, and once more for a log of their norm.

truth: NO-GO
says: unscale_.. has already been called
why: GradScaler allows one unscale_ between two updates.
"""

import torch
from start import start
from torch.nn.parallel import DistributedDataParallel

device = start()
model = DistributedDataParallel(torch.nn.Linear(8, 4).to(device))
optimizer = torch.optim.AdamW(model.parameters())
scaler = torch.amp.GradScaler(device.type, init_scale=1024.0)
for step in range(12):
    loss = model(torch.randn(4, 8, device=device)).pow(2).mean()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    if step % 10 == 9:
        scaler.unscale_(optimizer)
        print(step, [parameter.grad.norm().item() for parameter in model.parameters()])
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
