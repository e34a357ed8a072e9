"""A row-parallel product over a dimension of seven on two ranks; its partial sums are put together by all.

truth: GO
why: DTensor shards seven as four and three, and every rank redistributes.
"""

import torch
import torch.distributed as dist
from start import start
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

device = start()
mesh = init_device_mesh(device.type, (dist.get_world_size(),))
torch.manual_seed(0)
weight = torch.nn.Parameter(distribute_tensor(torch.randn(7, 5, device=device), mesh, [Shard(0)]))
optimizer = torch.optim.SGD([weight], lr=0.1)
for _ in range(6):
    x = distribute_tensor(torch.ones(3, 7, device=device), mesh, [Shard(1)])
    y = (x @ weight).redistribute(placements=[Replicate()])
    assert y.to_local().shape == (3, 5)
    y.pow(2).mean().to_local().backward()
    optimizer.step()
    optimizer.zero_grad()
whole = weight.full_tensor()
assert whole.shape == (7, 5)
dist.barrier()
dist.destroy_process_group()
