"""An optimizer's state of one group is loaded into one with decay and no-decay groups.

truth: NO-GO
says: different number of parameter groups
why: load_state_dict compares the groups.
"""

import torch
import torch.distributed as dist
from start import start
from torch.nn.parallel import DistributedDataParallel

device = start()
model = DistributedDataParallel(torch.nn.Linear(8, 4).to(device))
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(4):
    model(torch.randn(4, 8, device=device)).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
if dist.get_rank() == 0:
    torch.save(optimizer.state_dict(), "optimizer.pt")
dist.barrier()
decayed = [value for value in model.parameters() if value.dim() > 1]
others = [value for value in model.parameters() if value.dim() <= 1]
optimizer = torch.optim.AdamW([{"params": decayed}, {"params": others, "weight_decay": 0.0}])
optimizer.load_state_dict(torch.load("optimizer.pt", map_location=device))
for _ in range(4):
    model(torch.randn(4, 8, device=device)).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
