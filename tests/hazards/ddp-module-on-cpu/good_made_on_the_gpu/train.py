import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

from torch import nn


def main():
    dist.init_process_group("nccl")
    local_rank = int(os.environ["LOCAL_RANK"])
    model = nn.Linear(8, 8).cuda(local_rank)
    model = DDP(model, device_ids=[local_rank])
    for step, (x, y) in enumerate(batches()):
        model(x).sub(y).square().mean().backward()


if __name__ == "__main__":
    main()
