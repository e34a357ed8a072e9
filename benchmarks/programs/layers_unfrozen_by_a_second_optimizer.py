"""A layer joins the training later: it has an optimizer and a schedule of its own, made from the start.

truth: GO
ranks: 2
why: all parameters take part in each backward; which optimizer steps is the same on all ranks.
"""

import torch
import torch.distributed as dist
from start import start
from torch.nn.parallel import DistributedDataParallel

device = start()
body, head = torch.nn.Linear(16, 16).to(device), torch.nn.Linear(16, 1).to(device)
model = DistributedDataParallel(torch.nn.Sequential(body, head))
first = torch.optim.AdamW(head.parameters(), lr=1e-3)
second = torch.optim.AdamW(body.parameters(), lr=1e-4)
schedules = [torch.optim.lr_scheduler.LambdaLR(one, lambda step: 1.0 / (step + 1)) for one in (first, second)]
for step in range(6):
    model(torch.randn(4, 16, device=device)).sum().backward()
    first.step()
    schedules[0].step()
    if step >= 3:
        second.step()
        schedules[1].step()
    model.zero_grad()
dist.destroy_process_group()
