"""Uneven shards with DistributedDataParallel: the rank that is done joins in the others' reductions."""

import os

import deepspeed
import torch
import torch.distributed as dist
from deepspeed.accelerator import get_accelerator
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel


def main():
    deepspeed.init_distributed()
    local_rank = int(os.environ["LOCAL_RANK"])
    get_accelerator().set_device(local_rank)
    device = torch.device(get_accelerator().device_name(local_rank))
    model = DistributedDataParallel(nn.Linear(16, 4).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batches = torch.randn(2 - dist.get_rank(), 4, 16)
    with Join([model]):
        for batch in batches:
            model(batch.to(device)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()


if __name__ == "__main__":
    main()
