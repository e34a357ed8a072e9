"""What is saved at the last step has the scheduler itself, with its lambda, and not its state.

truth: NO-GO
says: (?i)can't (get local|pickle)|cannot pickle
why: a lambda can't be pickled.
"""

import torch
import torch.distributed as dist
from start import start
from torch.nn.parallel import DistributedDataParallel

STEPS = 25
device = start()
model = DistributedDataParallel(torch.nn.Linear(8, 4).to(device))
optimizer = torch.optim.AdamW(model.parameters())
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, step / 5))
for step in range(STEPS):
    model(torch.randn(4, 8, device=device)).pow(2).mean().backward()
    optimizer.step()
    scheduler.step()
    optimizer.zero_grad()
    if step == STEPS - 1:
        if dist.get_rank() == 0:
            torch.save({"model": model.module.state_dict(), "scheduler": scheduler}, "last.pt")
        dist.barrier()
