"""A DistributedSampler whose rank is counted from one, as the log's "worker 1 of 2" is.

truth: NO-GO
says: Invalid rank 2
why: of two replicas there is no rank 2: torch refuses it on the last rank, before any step.
"""

import torch
import torch.distributed as dist
from start import start
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

device = start()
worker, workers = dist.get_rank() + 1, dist.get_world_size()
print(f"worker {worker} of {workers}")
rows = TensorDataset(torch.randn(64, 8))
sampler = DistributedSampler(rows, num_replicas=workers, rank=worker, shuffle=True)
model = DistributedDataParallel(torch.nn.Linear(8, 4).to(device))
optimizer = torch.optim.AdamW(model.parameters())
for epoch in range(2):
    sampler.set_epoch(epoch)
    for (x,) in DataLoader(rows, batch_size=4, sampler=sampler):
        model(x.to(device)).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
dist.barrier()
dist.destroy_process_group()
