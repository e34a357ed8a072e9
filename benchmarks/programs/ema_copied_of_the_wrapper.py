"""The average is a deep copy of the wrapper itself, evaluated with its own forward.

truth: GO
why: DDP leaves its group out of what is copied and takes the default one again; nothing is reduced without gradients.
"""

import copy

import torch
import torch.distributed as dist
from start import start
from torch.nn.parallel import DistributedDataParallel

device = start()
net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.LayerNorm(16), torch.nn.Linear(16, 8))
model = DistributedDataParallel(net.to(device))
averaged = copy.deepcopy(model).eval()
for parameter in averaged.parameters():
    parameter.requires_grad_(False)
optimizer = torch.optim.AdamW(model.parameters())
for step in range(24):
    model(torch.randn(4, 8, device=device)).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    with torch.no_grad():
        decay = min(0.999, (1 + step) / (10 + step))
        torch._foreach_lerp_(list(averaged.parameters()), list(model.parameters()), 1 - decay)
    if step % 8 == 7:
        with torch.no_grad():
            total = averaged(torch.randn(4, 8, device=device)).pow(2).mean()
        dist.all_reduce(total)
if dist.get_rank() == 0:
    torch.save({"model": model.module.state_dict(), "average": averaged.module.state_dict()}, "last.pt")
dist.barrier()
dist.destroy_process_group()
