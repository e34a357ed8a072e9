"""A residual block adds in place into the output of its last linear layer, which backward does not need.

truth: GO
ranks: 2
why: a linear layer keeps its input and weight for backward, not its output.
"""

import torch
import torch.distributed as dist
from start import start
from torch.nn.parallel import DistributedDataParallel


class Block(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.gate = torch.nn.Linear(width, width)
        self.out = torch.nn.Linear(width, width)

    def forward(self, x):
        hidden = self.out(self.gate(x).sigmoid())
        hidden += x
        return hidden


device = start()
model = DistributedDataParallel(torch.nn.Sequential(Block(16), Block(16)).to(device))
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(4):
    model(torch.randn(4, 16, device=device)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
