"""Where the programs run: on the GPUs that their launch gives them, else on the CPU with gloo."""

import os
from datetime import timedelta

import torch
import torch.distributed as dist


def start():
    """This rank's device, once the process group is there."""
    local = int(os.environ["LOCAL_RANK"])
    if torch.cuda.is_available():
        torch.cuda.set_device(local)
        dist.init_process_group("nccl")
        return torch.device("cuda", local)
    dist.init_process_group("gloo", timeout=timedelta(seconds=40))
    return torch.device("cpu")
