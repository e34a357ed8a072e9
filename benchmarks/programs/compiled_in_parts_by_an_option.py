"""The same options with fullgraph off: the graph breaks at the test of a value, and goes on.

truth: GO
why: without fullgraph a break is allowed.
"""

import torch
from start import start
from torch.nn.parallel import DistributedDataParallel

OPTIONS = {"mode": None, "backend": "eager"}


class Gated(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 8)

    def forward(self, x):
        if x.abs().max() > 100.0:
            x = x.clamp(-100.0, 100.0)
        return self.layer(x)


def compiled(module, whole):
    options = dict(OPTIONS, fullgraph=whole)
    return torch.compile(module, **options)


device = start()
model = DistributedDataParallel(compiled(Gated().to(device), whole=False))
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(4):
    model(torch.randn(4, 8, device=device)).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
torch.distributed.barrier()
torch.distributed.destroy_process_group()
