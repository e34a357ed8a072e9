"""accelerate leaves the batches uneven (6 and 5), since no row may be seen twice; nothing joins them.

truth: NO-GO
says: (?i)timed out|timeout|connection
why: rank 0 waits in the gradients of its sixth batch for rank 1, which has ended its loop.
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
for row in rows:
    accelerator.backward(model(row).pow(2).mean())
    optimizer.step()
    optimizer.zero_grad()
if accelerator.is_main_process:
    torch.save(accelerator.get_state_dict(model), "model.pt")
