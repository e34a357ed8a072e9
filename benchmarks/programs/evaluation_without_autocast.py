"""A model in bfloat16 is trained on rows that a collator casts, and evaluated at the end on rows that nothing casts.

truth: NO-GO
says: must have the same dtype|expected .* same dtype
why: the evaluation's rows are float32, the weights bfloat16.
"""

import torch
from start import start
from torch.nn.parallel import DistributedDataParallel

device = start()
model = DistributedDataParallel(torch.nn.Linear(8, 4).to(device, torch.bfloat16))
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(30):
    model(torch.randn(4, 8, device=device).bfloat16()).float().pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
model.eval()
with torch.no_grad():
    held_out = torch.randn(16, 8).to(device)
    print(model.module(held_out).float().mean().item())
