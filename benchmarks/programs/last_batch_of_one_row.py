"""A batch norm over features; of 65 rows a rank the last batch of 4 has one.

truth: NO-GO
says: Expected more than 1 value per channel
why: in training batch norm has no variance of one value.
"""

import torch
from start import start
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

device = start()
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
model = DistributedDataParallel(model.to(device))
optimizer = torch.optim.AdamW(model.parameters())
rows = TensorDataset(torch.randn(130, 8), torch.arange(130) % 4)
loader = DataLoader(rows, batch_size=4, sampler=DistributedSampler(rows))
for x, label in loader:
    torch.nn.functional.cross_entropy(model(x.to(device)), label.to(device)).backward()
    optimizer.step()
    optimizer.zero_grad()
