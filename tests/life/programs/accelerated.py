"""accelerate's save_state and load_state."""

import os
import sys

import torch
from accelerate import Accelerator
from torch import nn

without = set(sys.argv[1:])
accelerator = Accelerator()
torch.manual_seed(1)
model = nn.Sequential(nn.Embedding(50, 16), nn.Flatten(), nn.Linear(64, 8))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))
rows = torch.randint(0, 50, (40, 4), generator=torch.Generator().manual_seed(3))
loader = torch.utils.data.DataLoader(rows, batch_size=2)
model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
start = 0
if os.path.isdir("state"):
    accelerator.load_state("state")
    start = 2
given = accelerator.skip_first_batches(loader, start) if start and "data" not in without else loader
step = start
for batch in given:
    step += 1
    accelerator.backward(model(batch).pow(2).mean())
    optimizer.step()
    scheduler.step()
    optimizer.zero_grad()
    if step == 2:
        accelerator.save_state("state")
    if step == 6:
        break
