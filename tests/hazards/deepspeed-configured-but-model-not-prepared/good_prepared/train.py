from accelerate import Accelerator
from torch import nn, optim, randn

accelerator = Accelerator()
model = nn.Linear(4, 4)
optimizer = optim.AdamW(model.parameters())
model, optimizer = accelerator.prepare(model, optimizer)
loss = model(randn(2, 4)).sum()
accelerator.backward(loss)
optimizer.step()
