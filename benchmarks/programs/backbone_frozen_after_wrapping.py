"""After a warm-up of all weights the backbone is frozen, behind DDP's back.

truth: NO-GO
says: Expected to have finished reduction in the prior iteration
why: DDP counts on every parameter that was trained when it wrapped; the frozen ones never report their gradients.
"""

import torch
from start import start
from torch.nn.parallel import DistributedDataParallel


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU())
        self.head = torch.nn.Linear(16, 4)

    def forward(self, rows):
        return self.head(self.backbone(rows))


def set_phase(model, epoch, warm):
    for parameter in model.backbone.parameters():
        parameter.requires_grad = epoch < warm


device = start()
model = DistributedDataParallel(Model().to(device))
optimizer = torch.optim.AdamW(model.parameters())
for epoch in range(4):
    set_phase(model.module, epoch, warm=2)
    for _ in range(7):
        model(torch.randn(4, 8, device=device)).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
