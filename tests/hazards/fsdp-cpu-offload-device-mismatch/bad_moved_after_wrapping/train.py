import os

import torch
import torch.distributed as dist
from torch.distributed.fsdp import CPUOffload, FullyShardedDataParallel

from net import Net

dist.init_process_group("nccl")
local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
model = Net()
model = FullyShardedDataParallel(model, cpu_offload=CPUOffload(offload_params=True))
model = model.to(local_rank)
model.train()
