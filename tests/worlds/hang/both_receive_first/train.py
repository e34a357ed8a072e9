"""Neighbours exchange their hidden states, each receiving before it sends."""

import deepspeed
import torch
import torch.distributed as dist
from deepspeed.accelerator import get_accelerator
from torch import nn


def exchange(hidden):
    neighbour = 1 - dist.get_rank()
    received = torch.empty_like(hidden)
    dist.recv(received, src=neighbour)
    dist.send(hidden, dst=neighbour)
    return received


def main():
    deepspeed.init_distributed()
    rank = dist.get_rank()
    get_accelerator().set_device(rank)
    layer = nn.Linear(16, 16).to(get_accelerator().device_name(rank))
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    for _ in range(2):
        hidden = layer(torch.randn(2, 16, device=get_accelerator().device_name(rank)))
        loss = (hidden - exchange(hidden.detach())).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main()
