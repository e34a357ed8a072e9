import os

import torch
import torch.distributed as dist

dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
count = torch.tensor(3.0, device="cuda")
dist.all_reduce(count)
