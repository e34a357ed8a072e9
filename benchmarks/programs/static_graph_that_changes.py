"""DDP with static_graph, whose training unfreezes by phase: from step 12 on the first layer is left out of the graph.

truth: NO-GO
says: (?i)graph has changed|mark.*ready|static
why: static_graph promises DDP that each step uses the parameters of the first.
"""

import torch
from start import start
from torch.nn.parallel import DistributedDataParallel


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Linear(8, 8)
        self.head = torch.nn.Linear(8, 4)

    def forward(self, row, *, body):
        return self.head(self.body(row) if body else row)


device = start()
model = DistributedDataParallel(Model().to(device), static_graph=True)
optimizer = torch.optim.AdamW(model.parameters())
for step in range(24):
    model(torch.randn(4, 8, device=device), body=step < 12).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
