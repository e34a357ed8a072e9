"""The rollout thread writes the samples of one rank and ends; the trainer takes as many for each rank of its world."""

import os
import queue
import threading

import torch
import torch.distributed as dist
from torch import nn

STEPS = 2


def roll_out(samples, count):
    for number in range(count):
        samples.put(torch.full((16,), float(number)))


def main():
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if torch.cuda.is_available() else torch.device("cpu")
    model = nn.Linear(16, 16).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    samples = queue.Queue()
    if rank == 0:
        threading.Thread(target=roll_out, args=(samples, 4 * STEPS)).start()
    for _ in range(STEPS):
        batches = torch.empty(world, 4, 16, device=device)
        if rank == 0:
            batches.copy_(torch.stack([samples.get() for _ in range(4 * world)]).view(world, 4, 16))
        dist.broadcast(batches, src=0)
        batch = batches[rank]
        loss = model(batch).square().mean()
        loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main()
