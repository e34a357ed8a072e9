"""The dataset decodes its rows with a multiprocessing pool, which it opens in the loader's worker.

truth: NO-GO
says: daemonic processes are not allowed to have children
why: the workers of a DataLoader are daemonic, and may start no processes.
"""

from multiprocessing import Pool

import torch
from start import start
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset


def decode(number):
    return [number / 64] * 8


class Rows(Dataset):
    pool = None

    def __len__(self):
        return 64

    def __getitem__(self, index):
        if self.pool is None:
            self.pool = Pool(2)
        return torch.tensor(self.pool.apply(decode, (index,)))


if __name__ == "__main__":
    device = start()
    model = DistributedDataParallel(torch.nn.Linear(8, 4).to(device))
    optimizer = torch.optim.AdamW(model.parameters())
    for x in DataLoader(Rows(), batch_size=4, num_workers=1):
        model(x.to(device)).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
