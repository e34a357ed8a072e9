"""Rank 0 splits the files and broadcasts the lists; each rank makes the list that receives them by its own count.

truth: NO-GO
ranks: 2
says: size|Timed out|closed|reset|RuntimeError|Unpickling|IndexError
why: the receiving list has another length, so that the object sizes that are broadcast have another shape.
"""

import torch
import torch.distributed as dist
from start import start

device = start()
rank = dist.get_rank()
shards = [f"part-{index}" for index in range(6)] if rank == 0 else [None] * dist.get_world_size()
dist.broadcast_object_list(shards, src=0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8).to(device))
optimizer = torch.optim.AdamW(model.parameters())
for shard in shards[rank::2][:3]:
    assert shard is not None
    model(torch.randn(2, 8, device=device)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.barrier()
dist.destroy_process_group()
