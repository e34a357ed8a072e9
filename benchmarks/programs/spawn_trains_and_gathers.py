"""A plain script that spawns its ranks with torch.multiprocessing, and gathers the predictions of each as objects.

launch: python
truth: GO
why: the function and its arguments can be pickled, and gather_object is called by every rank.
"""

import os
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


@dataclass
class Arguments:
    world_size: int = 2
    port: int = 29631
    epochs: int = 2
    rows: int = 61


def evaluate(rank, arguments, model, rows, device):
    """The predictions of all ranks on rank 0, in the order of the rows."""
    own = list(range(rank, len(rows), arguments.world_size))
    with torch.no_grad():
        predicted = {index: model(rows[index][0][None].to(device)).argmax().item() for index in own}
    every = [None] * arguments.world_size if rank == 0 else None
    dist.gather_object(predicted, every, dst=0)
    if rank == 0:
        together = {index: one for some in every for index, one in some.items()}
        assert sorted(together) == list(range(len(rows)))


def train(rank, arguments):
    on_gpu = torch.cuda.is_available()
    if on_gpu:
        torch.cuda.set_device(rank)
    device = torch.device("cuda", rank) if on_gpu else torch.device("cpu")
    dist.init_process_group(
        "nccl" if on_gpu else "gloo", rank=rank, world_size=arguments.world_size, timeout=timedelta(seconds=40)
    )
    rows = TensorDataset(torch.randn(arguments.rows, 8), torch.arange(arguments.rows) % 4)
    sampler = DistributedSampler(rows, arguments.world_size, rank)
    loader = DataLoader(rows, batch_size=4, sampler=sampler, drop_last=True)
    model = DistributedDataParallel(torch.nn.Linear(8, 4).to(device), device_ids=[rank] if on_gpu else None)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(arguments.epochs):
        sampler.set_epoch(epoch)
        for batch, classes in loader:
            torch.nn.functional.cross_entropy(model(batch.to(device)), classes.to(device)).backward()
            optimizer.step()
            optimizer.zero_grad()
        evaluate(rank, arguments, model.module, rows, device)
    dist.destroy_process_group()


if __name__ == "__main__":
    arguments = Arguments()
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    os.environ["MASTER_PORT"] = str(arguments.port)
    mp.spawn(train, args=(arguments,), nprocs=arguments.world_size, join=True)
