"""Rank 0 saves at the last step, all ranks wait for it, load what it wrote, and go on.

truth: GO
why: the states are plain tensors; the barrier stands between writing and reading.
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
            states = {"model": model.module, "optimizer": optimizer, "scheduler": scheduler}
            torch.save({name: one.state_dict() for name, one in states.items()}, "last.pt")
        dist.barrier()
kept = torch.load("last.pt", map_location=device, weights_only=True)
model.module.load_state_dict(kept["model"])
optimizer.load_state_dict(kept["optimizer"])
scheduler.load_state_dict(kept["scheduler"])
model(torch.randn(4, 8, device=device)).pow(2).mean().backward()
optimizer.step()
dist.destroy_process_group()
