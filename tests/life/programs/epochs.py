"""accelerate over epochs of three shuffled batches each: saved in the second, resumed by skip_first_batches."""

import os

import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration
from torch import nn
from truth import step_begins

SAVED_AT, BATCHES = 4, 3
accelerator = Accelerator(dataloader_config=DataLoaderConfiguration(use_seedable_sampler=True, data_seed=1))
torch.manual_seed(1)
model = nn.Sequential(nn.Embedding(50, 16), nn.Flatten(), nn.Linear(64, 8))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
rows = torch.randint(0, 50, (2 * BATCHES * accelerator.num_processes, 4), generator=torch.Generator().manual_seed(3))
loader = torch.utils.data.DataLoader(rows, batch_size=2, shuffle=True)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
start = 0
if os.path.isdir("state"):
    accelerator.load_state("state")
    start = SAVED_AT
step = start
for epoch in range(start // BATCHES, 4):
    loader.set_epoch(epoch)
    begun = start % BATCHES if epoch == start // BATCHES else 0
    for batch in accelerator.skip_first_batches(loader, begun) if begun else loader:
        step += 1
        step_begins(model, optimizer, None, batch, saved=step == SAVED_AT + 1)
        accelerator.backward(model(batch).pow(2).mean())
        optimizer.step()
        optimizer.zero_grad()
        if step == SAVED_AT:
            accelerator.save_state("state")
