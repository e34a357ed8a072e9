"""An average of the weights is made before FSDP2 shards the model, and brought up to date after it.

truth: NO-GO
says: (?i)mixed torch.Tensor and DTensor
why: the average is of plain tensors, the parameters are DTensors by then.
"""

import copy

import torch
from start import start
from torch.distributed.fsdp import fully_shard

device = start()
model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.Linear(16, 16)).to(device)
average = copy.deepcopy(model).requires_grad_(False)
for layer in model:
    fully_shard(layer)
fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters())
for step in range(40):
    model(torch.randn(4, 16, device=device)).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    if step >= 20:
        with torch.no_grad():
            for kept, value in zip(average.parameters(), model.parameters(), strict=True):
                kept.lerp_(value, 0.01)
