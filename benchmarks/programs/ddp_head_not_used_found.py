"""The same second head, with find_unused_parameters.

truth: GO
why: DDP marks the unused parameters as ready by itself.
"""

import torch
import torch.distributed as dist
from start import start
from torch.nn.parallel import DistributedDataParallel


class TwoHeads(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Linear(8, 8)
        self.value = torch.nn.Linear(8, 1)
        self.policy = torch.nn.Linear(8, 4)

    def forward(self, x, use_value):
        hidden = self.body(x).relu()
        return self.value(hidden) if use_value else self.policy(hidden)


device = start()
model = DistributedDataParallel(TwoHeads().to(device), find_unused_parameters=True)
optimizer = torch.optim.AdamW(model.parameters())
for step in range(6):
    model(torch.randn(4, 8, device=device), use_value=step % 2 == 0).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
