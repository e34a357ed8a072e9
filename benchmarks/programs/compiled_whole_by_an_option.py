"""How it compiles stands in a dictionary of options, fullgraph among them; the model asks whether an expert was chosen.

truth: NO-GO
says: Unsupported|Dynamic|data-dependent
why: an if whose test is a value breaks the graph, which fullgraph forbids.
"""

import torch
from start import start
from torch.nn.parallel import DistributedDataParallel

OPTIONS = {"mode": None, "backend": "eager"}


class Routed(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = torch.nn.Linear(8, 2)
        self.experts = torch.nn.ModuleList([torch.nn.Linear(8, 8) for _ in range(2)])

    def forward(self, x):
        chosen = self.gate(x).argmax(-1)
        out = torch.zeros_like(x)
        for index, expert in enumerate(self.experts):
            if (chosen == index).any():
                out = out + expert(x) * (chosen == index).unsqueeze(-1)
        return out


def compiled(module, whole):
    options = dict(OPTIONS, fullgraph=whole)
    return torch.compile(module, **options)


device = start()
model = DistributedDataParallel(Routed().to(device), find_unused_parameters=True)
step = compiled(model.module, whole=True)
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(4):
    step(torch.randn(4, 8, device=device)).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
