"""A frozen encoder is wrapped in DDP as the trained head is.

truth: NO-GO
says: DistributedDataParallel is not needed
why: DDP refuses a module without trained parameters.
"""

import torch
from start import start
from torch.nn.parallel import DistributedDataParallel

device = start()
encoder = torch.nn.Linear(8, 8).to(device).requires_grad_(False)
head = torch.nn.Linear(8, 2).to(device)
head = DistributedDataParallel(head)
encoder = DistributedDataParallel(encoder)
optimizer = torch.optim.AdamW(head.parameters())
for _ in range(6):
    head(encoder(torch.randn(4, 8, device=device))).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
