"""An EMA copy is made after warm-up, when the model keeps its last hidden states for a log.

truth: NO-GO
says: deepcopy protocol
why: deepcopy refuses a tensor that has a graph.
"""

import copy

import torch
from start import start
from torch.nn.parallel import DistributedDataParallel


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up = torch.nn.Linear(8, 16)
        self.down = torch.nn.Linear(16, 8)
        self.last_hidden = None

    def forward(self, x):
        self.last_hidden = self.up(x).relu()
        return self.down(self.last_hidden)


WARM_UP = 12
device = start()
model = DistributedDataParallel(Model().to(device))
optimizer = torch.optim.AdamW(model.parameters())
averaged = None
for step in range(30):
    model(torch.randn(4, 8, device=device)).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    if step == WARM_UP:
        averaged = copy.deepcopy(model.module)
    elif averaged is not None:
        with torch.no_grad():
            for mean, now in zip(averaged.parameters(), model.module.parameters(), strict=True):
                mean.lerp_(now, 0.01)
