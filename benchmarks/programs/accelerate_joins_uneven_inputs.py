"""accelerate leaves the batches uneven (6 and 5), under its own join_uneven_inputs.

here: fails
truth: GO
why: DDP's join shadows the collectives of the rank that has ended. (On a CPU accelerate warns that it joins nothing.)
"""

import torch
from accelerate import Accelerator, DataLoaderConfiguration
from start import start

start()
accelerator = Accelerator(dataloader_config=DataLoaderConfiguration(even_batches=False))
model = torch.nn.Linear(8, 4)
optimizer = torch.optim.AdamW(model.parameters())
rows = torch.utils.data.DataLoader(torch.randn(44, 8), batch_size=4)
model, optimizer, rows = accelerator.prepare(model, optimizer, rows)
for _ in range(2):
    with accelerator.join_uneven_inputs([model]):
        for row in rows:
            accelerator.backward(model(row).pow(2).mean())
            optimizer.step()
            optimizer.zero_grad()
accelerator.wait_for_everyone()
accelerator.end_training()
