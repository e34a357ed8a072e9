import os

import torch
import torch.distributed as dist


def dry_run():
    dist.init_process_group("nccl", rank=0, world_size=1)


def start():
    if os.environ.get("DRY_RUN"):
        dry_run()
    else:
        dist.init_process_group("nccl")


start()
torch.cuda.set_device(dist.get_rank() % torch.cuda.device_count())
