import torch
import torch.distributed as dist

dist.init_process_group("nccl")
count = torch.tensor(3.0)
dist.all_reduce(count)
