"""Row 39,000 of 40,000 has a label that the head has no class for.

truth: NO-GO
says: Target 9 is out of bounds|out of bounds
why: cross_entropy refuses class 9 of 4; the rows are read in order.
"""

import torch
from start import start
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Rows(Dataset):
    def __len__(self):
        return 40_000

    def __getitem__(self, index):
        label = 9 if index == 39_000 else index % 4
        return torch.full((8,), index / 40_000), torch.tensor(label)


device = start()
model = DistributedDataParallel(torch.nn.Linear(8, 4).to(device))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
rows = Rows()
for x, label in DataLoader(rows, batch_size=16, sampler=DistributedSampler(rows, shuffle=False)):
    loss = torch.nn.functional.cross_entropy(model(x.to(device)), label.to(device))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
