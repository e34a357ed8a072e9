"""A linear warm-up, then a cosine, through SequentialLR.

truth: GO
why: both schedulers allow any number of steps.
"""

import torch
import torch.distributed as dist
from start import start
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, SequentialLR

device = start()
model = DistributedDataParallel(torch.nn.Linear(8, 4).to(device))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
warm_up = LinearLR(optimizer, start_factor=0.1, total_iters=5)
scheduler = SequentialLR(optimizer, [warm_up, CosineAnnealingLR(optimizer, T_max=35)], milestones=[5])
for _ in range(40):
    model(torch.randn(4, 8, device=device)).pow(2).mean().backward()
    optimizer.step()
    scheduler.step()
    optimizer.zero_grad()
assert optimizer.param_groups[0]["lr"] < 1e-3
dist.destroy_process_group()
