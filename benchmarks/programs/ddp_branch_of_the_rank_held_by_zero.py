"""Each rank trains a head of its own, and adds the other one's parameters times nought to the loss.

truth: GO
why: all parameters have a gradient on both ranks.
"""

import torch
import torch.distributed as dist
from start import start
from torch.nn.parallel import DistributedDataParallel


class TwoHeads(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Linear(8, 16)
        self.heads = torch.nn.ModuleDict({"text": torch.nn.Linear(16, 4), "pictures": torch.nn.Linear(16, 4)})

    def forward(self, x, kind):
        features = self.body(x).relu()
        nothing = sum(0.0 * value.sum() for value in self.heads.parameters())
        return self.heads[kind](features).pow(2).mean() + nothing


device = start()
model = DistributedDataParallel(TwoHeads().to(device))
optimizer = torch.optim.AdamW(model.parameters())
kind = ["text", "pictures"][dist.get_rank() % 2]
for _ in range(6):
    model(torch.randn(4, 8, device=device), kind).backward()
    optimizer.step()
    optimizer.zero_grad()
dist.barrier()
dist.destroy_process_group()
