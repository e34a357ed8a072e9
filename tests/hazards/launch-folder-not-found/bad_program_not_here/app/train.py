import torch

torch.distributed.init_process_group("nccl")
print(torch.ones(1))
