"""Rank 0 gathers the weights in the thread that sends them, the others in their main thread (TRL's AsyncGRPO)."""

import os
import queue
import threading

import torch
import torch.distributed as dist
from torch import nn

STEPS = 2


def gathered(model):
    """Each parameter whole: a collective of all trainer ranks."""
    for parameter in model.parameters():
        parts = [torch.empty_like(parameter) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, parameter.data)
        yield torch.stack(parts).mean(dim=0)


def send(weights, sent):
    for weight in weights:
        sent.put(weight)


def main():
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    rank = dist.get_rank()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if torch.cuda.is_available() else torch.device("cpu")
    model = nn.Linear(16, 16).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sent = queue.Queue()
    for _ in range(STEPS):
        batch = torch.ones(4, 16, device=device)
        loss = model(batch).square().mean()
        loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
        optimizer.zero_grad()
        if rank == 0:
            sender = threading.Thread(target=send, args=(gathered(model), sent), daemon=True)
            sender.start()
            sender.join()
        else:
            for _ in gathered(model):
                pass
        dist.barrier()


if __name__ == "__main__":
    main()
