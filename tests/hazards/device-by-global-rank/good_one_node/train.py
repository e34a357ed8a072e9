import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("nccl")
gpu = dist.get_rank()
torch.cuda.set_device(gpu)
device = torch.device("cuda", gpu)
model = DistributedDataParallel(nn.Linear(8, 2).to(device), device_ids=[device])
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(100):
    model(torch.randn(4, 8, device=device)).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
