"""A GAN with two wrappers, two optimizers, two schedulers, one GradScaler, and R1 every fourth step.

truth: GO
why: each optimizer is stepped and the scaler updated once a step; the penalty's graph goes through the real rows alone.
"""

import torch
import torch.distributed as dist
from start import start
from torch.nn.parallel import DistributedDataParallel

device = start()
generator = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.ReLU(), torch.nn.Linear(16, 8)).to(device)
critic = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.LeakyReLU(0.2), torch.nn.Linear(16, 1)).to(device)
generator = DistributedDataParallel(generator, broadcast_buffers=False)
critic = DistributedDataParallel(critic, broadcast_buffers=False)
optimizers = [torch.optim.Adam(one.parameters(), lr=2e-4, betas=(0.0, 0.99)) for one in (generator, critic)]
schedulers = [torch.optim.lr_scheduler.LambdaLR(one, lambda step: 1 / (1 + step)) for one in optimizers]
scaler = torch.amp.GradScaler(device.type, enabled=device.type == "cuda")
softplus = torch.nn.functional.softplus
for step in range(16):
    real = torch.randn(8, 8, device=device)
    critic.requires_grad_(True)
    optimizers[1].zero_grad(set_to_none=True)
    with torch.autocast(device.type, dtype=torch.float16 if device.type == "cuda" else torch.bfloat16):
        with torch.no_grad():
            made = generator(torch.randn(8, 4, device=device))
        loss = softplus(critic(made)).mean() + softplus(-critic(real)).mean()
    if step % 4 == 0:
        real.requires_grad_(True)
        scores = critic.module(real).sum()
        (slope,) = torch.autograd.grad(scores, real, create_graph=True)
        loss = loss + 5 * slope.square().sum(-1).mean()
    scaler.scale(loss).backward()
    scaler.step(optimizers[1])

    critic.requires_grad_(False)
    optimizers[0].zero_grad(set_to_none=True)
    with torch.autocast(device.type, dtype=torch.float16 if device.type == "cuda" else torch.bfloat16):
        loss = softplus(-critic(generator(torch.randn(8, 4, device=device)))).mean()
    scaler.scale(loss).backward()
    scaler.step(optimizers[0])
    scaler.update()
    for scheduler in schedulers:
        scheduler.step()
dist.destroy_process_group()
