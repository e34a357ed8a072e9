"""Two persistent workers over three epochs, each seeded by a worker_init_fn, with a sampler that is told the epoch.

truth: GO
why: each epoch ends on all ranks after the same number of batches.
"""

import random

import torch
import torch.distributed as dist
from start import start
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def seed_worker(_):
    random.seed(torch.initial_seed() % 2**32)


device = start()
model = DistributedDataParallel(torch.nn.Linear(8, 4).to(device))
optimizer = torch.optim.AdamW(model.parameters())
rows = TensorDataset(torch.randn(45, 8), torch.arange(45) % 4)
sampler = DistributedSampler(rows, shuffle=True)
loader = DataLoader(
    rows, batch_size=4, sampler=sampler, num_workers=2, persistent_workers=True, worker_init_fn=seed_worker
)
for epoch in range(3):
    sampler.set_epoch(epoch)
    for x, label in loader:
        torch.nn.functional.cross_entropy(model(x.to(device)), label.to(device)).backward()
        optimizer.step()
        optimizer.zero_grad()
dist.barrier()
dist.destroy_process_group()
