"""OneCycleLR made for 30 optimizer steps of a loop that makes 40: accumulation was counted wrongly.

truth: NO-GO
says: total number of steps|specified number of total steps
why: the scheduler refuses to step past its end.
"""

import torch
from start import start
from torch.nn.parallel import DistributedDataParallel

EPOCHS, BATCHES, ACCUMULATION = 4, 10, 1
device = start()
model = DistributedDataParallel(torch.nn.Linear(8, 4).to(device))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1e-3, total_steps=(EPOCHS - 1) * BATCHES)
for _ in range(EPOCHS):
    for _ in range(BATCHES // ACCUMULATION):
        model(torch.randn(4, 8, device=device)).pow(2).mean().backward()
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
