"""gather_object with a list on every rank.

truth: NO-GO
says: must NOT be specified on non-destination ranks
why: only the destination may give the list.
"""

import torch
import torch.distributed as dist
from start import start

device = start()
model = torch.nn.Linear(8, 4).to(device)
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(4):
    model(torch.randn(4, 8, device=device)).pow(2).mean().backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
    optimizer.step()
    optimizer.zero_grad()
every = [None] * dist.get_world_size()
dist.gather_object({"rank": dist.get_rank()}, every, dst=0)
print(every)
