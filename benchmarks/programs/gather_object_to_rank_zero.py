"""gather_object with a list on rank 0, and None elsewhere.

truth: GO
why: it is how the function is called.
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
every = [None] * dist.get_world_size() if dist.get_rank() == 0 else None
dist.gather_object({"rank": dist.get_rank()}, every, dst=0)
if every is not None:
    assert [one["rank"] for one in every] == list(range(dist.get_world_size()))
dist.destroy_process_group()
