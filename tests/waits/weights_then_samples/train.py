"""The rollout rank receives weights, then sends samples; the trainer sends and receives in that order."""

import os

import torch
import torch.distributed as dist
from torch import nn

STEPS = 2


def main():
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if torch.cuda.is_available() else torch.device("cpu")
    model = nn.Linear(16, 16).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    trainers = dist.new_group(list(range(world - 1)))
    sync = dist.new_group([0, world - 1])
    batch = torch.empty(4, 16, device=device)
    for _ in range(STEPS):
        if rank == world - 1:  # the rollout
            dist.broadcast(model.weight.data, src=0, group=sync)
            dist.send(model(torch.ones(4, 16, device=device)).detach(), dst=0)
        else:
            if rank == 0:
                dist.broadcast(model.weight.data, src=0, group=sync)
                dist.recv(batch, src=world - 1)
            dist.broadcast(batch, src=0, group=trainers)
            model(batch).square().mean().backward()
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad, group=trainers)
            optimizer.step()
            optimizer.zero_grad()


if __name__ == "__main__":
    main()
