"""The rollout thread fills the queue with the engine's lock held, which the trainer needs before it takes a sample."""

import os
import queue
import threading

import torch
import torch.distributed as dist
from torch import nn

STEPS = 2


def roll_out(samples, engine, started):
    for _ in range(STEPS):
        with engine:
            for number in range(4):
                samples.put(torch.full((16,), float(number)))
                started.set()


def main():
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    rank = dist.get_rank()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if torch.cuda.is_available() else torch.device("cpu")
    model = nn.Linear(16, 16).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    samples, engine, started = queue.Queue(maxsize=1), threading.Lock(), threading.Event()
    if rank == 0:
        threading.Thread(target=roll_out, args=(samples, engine, started)).start()
    for _ in range(STEPS):
        if rank == 0:
            started.wait()
            engine.acquire()
        for parameter in model.parameters():
            dist.broadcast(parameter.data, src=0)
        if rank == 0:
            engine.release()
        batch = torch.empty(4, 16, device=device)
        if rank == 0:
            batch.copy_(torch.stack([samples.get() for _ in range(4)]))
        dist.broadcast(batch, src=0)
        loss = model(batch).square().mean()
        loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main()
