import torch
import torch.distributed as dist


def plan(size):
    dist.init_process_group("fake", rank=0, world_size=size)


if torch.cuda.is_available():
    dist.init_process_group("nccl")
else:
    plan(8)
torch.cuda.set_device(dist.get_rank() % torch.cuda.device_count())
