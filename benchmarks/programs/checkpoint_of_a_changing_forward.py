"""Activation checkpointing over a forward that takes another way each second time.

truth: NO-GO
says: CheckpointError|different number of tensors|saved
why: the recomputation in backward saves other tensors than the forward did.
"""

import torch
from start import start
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up = torch.nn.Linear(8, 16)
        self.down = torch.nn.Linear(16, 8)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        hidden = self.up(x)
        if self.calls % 2:
            hidden = hidden.relu() * hidden.sigmoid()
        return self.down(hidden)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.block = Block()

    def forward(self, x):
        return checkpoint(self.block, x, use_reentrant=False)


device = start()
model = DistributedDataParallel(Model().to(device))
for _ in range(4):
    model(torch.randn(4, 8, device=device, requires_grad=True)).pow(2).mean().backward()
