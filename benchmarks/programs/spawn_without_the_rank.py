"""A plain script that spawns its ranks with torch.multiprocessing, by a function that takes the arguments alone.

launch: python
truth: NO-GO
says: takes 1 positional argument but 2 were given
why: mp.spawn gives the function the rank first, before args.
"""

import os
from argparse import Namespace
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel


def train(arguments):
    rank = int(os.environ.get("LOCAL_RANK", 0))
    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda", rank) if on_gpu else torch.device("cpu")
    dist.init_process_group(
        "nccl" if on_gpu else "gloo", rank=rank, world_size=arguments.ranks, timeout=timedelta(seconds=40)
    )
    model = DistributedDataParallel(torch.nn.Linear(8, 4).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=arguments.lr)
    for _ in range(arguments.steps):
        model(torch.randn(4, 8, device=device)).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29632")
    arguments = Namespace(ranks=2, lr=0.1, steps=8)
    mp.spawn(train, args=(arguments,), nprocs=arguments.ranks)
