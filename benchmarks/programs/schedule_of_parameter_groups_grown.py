"""A layer is unfrozen after some steps: its parameters become a further group of the optimizer, past the scheduler.

truth: NO-GO
ranks: 2
says: KeyError|zip\\(\\)|ValueError|argument
why: LambdaLR has one function for each group that there was, and zips strictly with the groups that there are.
"""

import torch
import torch.distributed as dist
from start import start
from torch.nn.parallel import DistributedDataParallel

device = start()
body, head = torch.nn.Linear(16, 16).to(device), torch.nn.Linear(16, 1).to(device)
model = DistributedDataParallel(torch.nn.Sequential(body, head))
optimizer = torch.optim.AdamW(head.parameters(), lr=1e-3)
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, [lambda step: 1.0 / (step + 1)])
for step in range(6):
    if step == 3:
        optimizer.add_param_group({"params": list(body.parameters()), "lr": 1e-4})
    model(torch.randn(4, 16, device=device)).sum().backward()
    optimizer.step()
    schedule.step()
    optimizer.zero_grad()
dist.destroy_process_group()
