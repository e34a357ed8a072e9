import os

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel

from net import Net

dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
model = Net().cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
model = FullyShardedDataParallel(model)
for batch in batches():
    model(batch).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
