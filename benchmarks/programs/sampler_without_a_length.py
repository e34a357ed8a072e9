"""A batch sampler that only iterates, for two epochs of as many batches on each rank; nobody asks for its length.

truth: GO
why: a loader asks a batch sampler for its length only when it is itself asked.
"""

import torch
import torch.distributed as dist
from start import start
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader


class Chunks:
    def __init__(self, rows, size, rank, world):
        self.rows, self.size, self.rank, self.world = rows, size, rank, world

    def __iter__(self):
        chunks = [list(range(first, first + self.size)) for first in range(0, self.rows - self.size + 1, self.size)]
        yield from chunks[self.rank : len(chunks) // self.world * self.world : self.world]


device = start()
rows = [torch.full((8,), number / 100) for number in range(130)]
loader = DataLoader(rows, batch_sampler=Chunks(len(rows), 4, dist.get_rank(), dist.get_world_size()))
model = DistributedDataParallel(torch.nn.Linear(8, 4).to(device))
optimizer = torch.optim.AdamW(model.parameters())
steps = 0
for _ in range(2):
    model.train()
    for batch in loader:
        model(batch.to(device)).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        steps += 1
    model.eval()
    with torch.no_grad():
        print(torch.stack([model(batch.to(device)).mean() for batch in loader]).mean().item())
dist.barrier()
dist.destroy_process_group()
