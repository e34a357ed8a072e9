"""The norms of sharded weights are logged on rank 0, which puts each weight together first.

truth: NO-GO
says: (?i)connection|timed out|timeout
why: full_tensor() gathers from all ranks, and rank 1 goes on to the barrier.
"""

import torch
import torch.distributed as dist
from start import start
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

device = start()
mesh = init_device_mesh(device.type, (dist.get_world_size(),))
weight = torch.nn.Parameter(distribute_tensor(torch.randn(16, 8, device=device), mesh, [Shard(0)]))
optimizer = torch.optim.AdamW([weight])
for _ in range(6):
    x = distribute_tensor(torch.ones(4, 8, device=device), mesh, [Shard(0)])
    (x.sum() * weight.pow(2).mean()).backward()
    optimizer.step()
    optimizer.zero_grad()
if dist.get_rank() == 0:
    print("norm", weight.full_tensor().norm().item())
dist.barrier()
dist.destroy_process_group()
