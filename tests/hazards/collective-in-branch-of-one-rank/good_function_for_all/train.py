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


def mean_of(loss):
    total = loss.detach().clone()
    dist.all_reduce(total)
    return total.item() / dist.get_world_size()


for step in range(100):
    loss = model(torch.randn(4, 8, device="cuda")).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    mean = mean_of(loss)
    if dist.get_rank() == 0 and step % 10 == 0:
        print(step, mean)
