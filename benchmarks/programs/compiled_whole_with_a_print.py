"""torch.compile(fullgraph=True) of a block that prints the norm of what it got.

truth: NO-GO
says: Could not guard|Unsupported
why: .item() and print break the graph, which fullgraph forbids.
"""

import torch
from start import start
from torch.nn.parallel import DistributedDataParallel


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 8)

    def forward(self, x):
        if x.norm().item() > 1e6:
            print("large input")
        return self.layer(x).relu()


device = start()
block = torch.compile(Block().to(device), fullgraph=True, backend="eager")
model = DistributedDataParallel(block)
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(4):
    model(torch.randn(4, 8, device=device)).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
