"""Rank 0 trains the head for text, rank 1 the head for pictures, with find_unused_parameters left at False.

truth: NO-GO
says: Expected to have finished reduction
why: on each rank the other head gets no gradient, so that the bucket is never reduced; the second forward refuses.
"""

import torch
import torch.distributed as dist
from start import start
from torch.nn.parallel import DistributedDataParallel


class TwoHeads(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Linear(8, 16)
        self.text = torch.nn.Linear(16, 4)
        self.pictures = torch.nn.Linear(16, 4)

    def forward(self, x, kind):
        features = self.body(x).relu()
        return self.text(features) if kind == "text" else self.pictures(features)


device = start()
model = DistributedDataParallel(TwoHeads().to(device), find_unused_parameters=False)
optimizer = torch.optim.AdamW(model.parameters())
kind = ["text", "pictures"][dist.get_rank() % 2]
for _ in range(6):
    model(torch.randn(4, 8, device=device), kind).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
