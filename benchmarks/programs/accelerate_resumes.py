"""accelerate with accumulation, save_state and load_state in the middle, and gather_for_metrics.

truth: GO
why: all ranks call all of it.
"""

import torch
from accelerate import Accelerator
from start import start

start()
accelerator = Accelerator(gradient_accumulation_steps=2)
model = torch.nn.Linear(8, 4)
optimizer = torch.optim.AdamW(model.parameters())
rows = torch.utils.data.DataLoader(torch.randn(70, 8), batch_size=4)
model, optimizer, rows = accelerator.prepare(model, optimizer, rows)
for epoch in range(2):
    for row in rows:
        with accelerator.accumulate(model):
            accelerator.backward(model(row).pow(2).mean())
            optimizer.step()
            optimizer.zero_grad()
    if epoch == 0:
        accelerator.save_state("state")
        accelerator.load_state("state")
every = []
for row in rows:
    with torch.no_grad():
        every.append(accelerator.gather_for_metrics(model(row)))
assert sum(one.shape[0] for one in every) == 70
accelerator.end_training()
