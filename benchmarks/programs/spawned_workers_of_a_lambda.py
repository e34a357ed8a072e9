"""The loader's workers are spawned, as with CUDA one should; what is done to each row is a lambda.

truth: NO-GO
says: (?i)pickl|local object
why: a spawned worker gets the dataset pickled, and a lambda can't be.
"""

import torch
from start import start
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    def __init__(self, change):
        self.change = change

    def __len__(self):
        return 32

    def __getitem__(self, index):
        return self.change(torch.full((8,), float(index)))


if __name__ == "__main__":
    device = start()
    model = DistributedDataParallel(torch.nn.Linear(8, 4).to(device))
    optimizer = torch.optim.AdamW(model.parameters())
    rows = Rows(lambda row: row / 32)
    for row in DataLoader(rows, batch_size=4, num_workers=2, multiprocessing_context="spawn"):
        model(row.to(device)).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
