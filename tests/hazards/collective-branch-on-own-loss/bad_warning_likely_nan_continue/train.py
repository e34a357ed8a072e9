import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("nccl")
local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
model = DistributedDataParallel(nn.Linear(8, 2).cuda(), device_ids=[local_rank])
optimizer = torch.optim.AdamW(model.parameters())
for x, y in batches():
    loss = nn.functional.cross_entropy(model(x.cuda()), y.cuda())
    if torch.isnan(loss) or torch.isinf(loss):
        optimizer.zero_grad()
        continue
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
