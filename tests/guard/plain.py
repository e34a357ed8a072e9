"""A training loop of one's own with DDP, and a collective within torch.compile."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

dist.init_process_group("gloo")
model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 1)))
optimizer = torch.optim.AdamW(model.parameters())
for (batch,) in DataLoader(TensorDataset(torch.ones(10, 8)), batch_size=2, num_workers=1):
    model(batch).mean().backward()
    optimizer.step()
    optimizer.zero_grad()


@torch.compile(backend="eager", fullgraph=True)
def summed(tensor: torch.Tensor) -> torch.Tensor:
    dist.all_reduce(tensor)
    return tensor * 2


print(f"rank {dist.get_rank()}: {summed(torch.ones(2)).tolist()}", flush=True)
dist.destroy_process_group()
