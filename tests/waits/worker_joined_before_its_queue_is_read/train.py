"""The trainer joins the rollout process before it has read what that process still has to write into the queue."""

import multiprocessing
import os

import torch
import torch.distributed as dist
from torch import nn

STEPS = 2


def roll_out(samples):
    """Samples that are larger than a pipe."""
    for number in range(4):
        samples.put([float(number)] * 100_000)


def main():
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    rank = dist.get_rank()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if torch.cuda.is_available() else torch.device("cpu")
    model = nn.Linear(16, 16).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    context = multiprocessing.get_context("spawn")
    samples = context.Queue()
    worker = context.Process(target=roll_out, args=(samples,))
    taken = []
    if rank == 0:
        worker.start()
        worker.join()
        taken = [samples.get() for _ in range(4)]
    dist.barrier()
    for _ in range(STEPS):
        batch = torch.empty(4, 16, device=device)
        if rank == 0:
            batch.copy_(torch.tensor([sample[:16] for sample in taken]))
        dist.broadcast(batch, src=0)
        loss = model(batch).square().mean()
        loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main()
