"""The evaluation's predictions are gathered by the main process alone.

truth: NO-GO
says: (?i)connection|timed out|timeout
why: accelerator.gather is a collective.
"""

import torch
from accelerate import Accelerator
from start import start

start()
accelerator = Accelerator()
model = torch.nn.Linear(8, 4)
optimizer = torch.optim.AdamW(model.parameters())
rows = torch.utils.data.DataLoader(torch.randn(64, 8), batch_size=4)
model, optimizer, rows = accelerator.prepare(model, optimizer, rows)
for _ in range(3):
    for row in rows:
        accelerator.backward(model(row).pow(2).mean())
        optimizer.step()
        optimizer.zero_grad()
with torch.no_grad():
    scores = model(torch.randn(4, 8, device=accelerator.device))
if accelerator.is_main_process:
    print(accelerator.gather(scores).mean())
accelerator.wait_for_everyone()
