"""A model with a second head that the loss leaves out.

truth: NO-GO
says: Expected to have finished reduction
why: DDP waits for the gradients of the head; the next forward raises.
"""

import torch
from start import start
from torch.nn.parallel import DistributedDataParallel


class TwoHeads(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Linear(8, 8)
        self.value = torch.nn.Linear(8, 1)
        self.policy = torch.nn.Linear(8, 4)

    def forward(self, x):
        hidden = self.body(x).relu()
        return self.policy(hidden)


device = start()
model = DistributedDataParallel(TwoHeads().to(device))
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(6):
    model(torch.randn(4, 8, device=device)).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
