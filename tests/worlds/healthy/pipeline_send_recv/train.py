"""A pipeline of two stages by hand: activations go forward, gradients come back."""

import os

import deepspeed
import torch
import torch.distributed as dist
from deepspeed.accelerator import get_accelerator
from torch import nn


def first_stage(layer, device):
    x = torch.randn(4, 16, device=device)
    hidden = layer(x)
    dist.send(hidden.detach(), dst=1)
    gradient = torch.empty_like(hidden)
    dist.recv(gradient, src=1)
    hidden.backward(gradient)


def last_stage(layer, device):
    hidden = torch.empty(4, 32, device=device)
    dist.recv(hidden, src=0)
    hidden.requires_grad_()
    layer(hidden).square().mean().backward()
    dist.send(hidden.grad, dst=0)


def main():
    deepspeed.init_distributed()
    local_rank = int(os.environ["LOCAL_RANK"])
    get_accelerator().set_device(local_rank)
    device = torch.device(get_accelerator().device_name(local_rank))
    is_first = dist.get_rank() == 0
    layer = (nn.Linear(16, 32) if is_first else nn.Linear(32, 4)).to(device)
    optimizer = torch.optim.AdamW(layer.parameters(), lr=1e-3)
    for _ in range(2):
        (first_stage if is_first else last_stage)(layer, device)
        optimizer.step()
        optimizer.zero_grad()
    dist.barrier()


if __name__ == "__main__":
    main()
