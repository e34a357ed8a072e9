"""The orchestrator answers each step's weights in turn."""

import os
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

STEPS = 3
BROADCASTS = Path("broadcasts")


def wait_for(path):
    while not path.exists():
        time.sleep(0.1)


def orchestrate():
    for step in range(1, STEPS + 1):
        wait_for(BROADCASTS / f"stable_{step}")
        (BROADCASTS / f"ready_{step}").touch()


def main():
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    rank = dist.get_rank()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if torch.cuda.is_available() else torch.device("cpu")
    model = nn.Linear(16, 16).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if rank == 0:
        BROADCASTS.mkdir(exist_ok=True)
        threading.Thread(target=orchestrate).start()
    for step in range(STEPS):
        batch = torch.ones(4, 16, device=device)
        loss = model(batch).square().mean()
        loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
        optimizer.zero_grad()
        if rank == 0:
            (BROADCASTS / f"stable_{step + 1}").touch()
            wait_for(BROADCASTS / f"ready_{step + 1}")
        for parameter in model.parameters():
            dist.broadcast(parameter.data, src=0)


if __name__ == "__main__":
    main()
