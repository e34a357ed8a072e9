import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(64, 64)
        self.head = nn.Linear(64, 2)
        self.aux_head = nn.Linear(64, 10)

    def forward(self, x):
        x = self.encoder(x)
        return self.head(x)


dist.init_process_group("nccl")
local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
model = DistributedDataParallel(Net().cuda(), device_ids=[local_rank])
for x, y in batches():
    nn.functional.cross_entropy(model(x.cuda()), y.cuda()).backward()
