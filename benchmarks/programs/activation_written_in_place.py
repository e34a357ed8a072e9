"""A residual block adds into its input in place, after a sigmoid whose result backward needs.

truth: NO-GO
ranks: 2
says: modified by an inplace operation
why: sigmoid keeps its output for backward, and += changes it.
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
        gated = self.gate(x).sigmoid()
        kept = self.out(gated)
        gated += x
        return kept + gated


device = start()
model = DistributedDataParallel(torch.nn.Sequential(Block(16), Block(16)).to(device))
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(4):
    model(torch.randn(4, 16, device=device)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
