"""The loss comes of a helper that was written for evaluation.

truth: NO-GO
says: does not require grad
why: under torch.no_grad nothing is recorded, so backward has nothing to start from.
"""

import torch
from start import start
from torch.nn.parallel import DistributedDataParallel


@torch.no_grad()
def token_loss(model, rows, labels):
    return torch.nn.functional.cross_entropy(model(rows), labels)


device = start()
model = DistributedDataParallel(torch.nn.Linear(8, 4).to(device))
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(6):
    loss = token_loss(model, torch.randn(4, 8, device=device), torch.zeros(4, dtype=torch.long, device=device))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
