"""Each rank streams its shards; rank 1's are three batches of two thousand shorter.

truth: NO-GO
says: Timed out|Connection closed|wait timeout
why: in its last three batches rank 0 reduces gradients that rank 1 never brings.
"""

import torch
import torch.distributed as dist
from start import start
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset

SHARDS = [[500] * 4, [500, 500, 500, 497]]


class Stream(IterableDataset):
    def __init__(self, rank):
        self.shards = SHARDS[rank]

    def __iter__(self):
        for number, rows in enumerate(self.shards):
            for index in range(rows * 4):
                yield torch.full((8,), (number + index) % 7 / 7)


device = start()
model = DistributedDataParallel(torch.nn.Linear(8, 4).to(device))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for x in DataLoader(Stream(dist.get_rank()), batch_size=4):
    model(x.to(device)).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.barrier()
