import deepspeed
import torch
from torch import nn

model = nn.Linear(8, 2)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, 1.0, 100)
engine, optimizer, _, _ = deepspeed.initialize(
    model=model, optimizer=optimizer, config="ds.json", lr_scheduler=scheduler
)
for x, y in batches():
    loss = nn.functional.cross_entropy(engine(x), y)
    engine.backward(loss)
    engine.step()
