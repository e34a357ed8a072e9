"""Row 70 of 80 lacks its label; the rows are read by two worker processes.

truth: NO-GO
says: KeyError
why: the worker's KeyError is raised again in the rank, at step 17 of 20.
"""

import torch
from start import start
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    def __init__(self):
        self.rows = [{"x": torch.randn(8), "label": index % 4} for index in range(80)]
        del self.rows[70]["label"]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        row = self.rows[index]
        return row["x"], torch.tensor(row["label"])


device = start()
model = DistributedDataParallel(torch.nn.Linear(8, 4).to(device))
optimizer = torch.optim.AdamW(model.parameters())
for x, label in DataLoader(Rows(), batch_size=4, num_workers=2):
    torch.nn.functional.cross_entropy(model(x.to(device)), label.to(device)).backward()
    optimizer.step()
    optimizer.zero_grad()
