"""Rank 0 splits the files and broadcasts them as one object, whose length the others need not know.

truth: GO
ranks: 2
why: the list that is broadcast has one place on each rank.
"""

import torch
import torch.distributed as dist
from start import start

device = start()
rank = dist.get_rank()
box = [[f"part-{index}" for index in range(6)]] if rank == 0 else [None]
dist.broadcast_object_list(box, src=0)
shards = box[0]
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8).to(device))
optimizer = torch.optim.AdamW(model.parameters())
for shard in shards[rank::2][:3]:
    assert shard.startswith("part-")
    model(torch.randn(2, 8, device=device)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.barrier()
dist.destroy_process_group()
