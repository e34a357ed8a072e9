"""The trainer pauses the server, and resumes it after it has taken the samples that the paused server has to write."""

import os
import queue
import threading

import requests
import torch
import torch.distributed as dist
from torch import nn

URL = os.environ.get("ROLLOUT_SERVER", "http://127.0.0.1:8000")
STEPS = 2
PROMPT = {"model": "model", "prompt": [1, 2, 3], "max_tokens": 4}


def roll_out(samples):
    """Ask the server for completions, as many as the trainer takes."""
    for _ in range(4 * STEPS):
        answer = requests.post(f"{URL}/v1/completions", json=PROMPT).json()
        samples.put(torch.full((16,), float(len(answer["choices"]))))


def main():
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    rank = dist.get_rank()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if torch.cuda.is_available() else torch.device("cpu")
    model = nn.Linear(16, 16).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    samples = queue.Queue()
    for step in range(STEPS):
        if rank == 0:
            requests.post(f"{URL}/pause", params={"mode": "keep"})
            if step == 0:
                threading.Thread(target=roll_out, args=(samples,)).start()
        dist.barrier()
        batch = torch.empty(4, 16, device=device)
        if rank == 0:
            batch.copy_(torch.stack([samples.get() for _ in range(4)]))
        dist.broadcast(batch, src=0)
        if rank == 0:
            requests.post(f"{URL}/resume")
        loss = model(batch).square().mean()
        loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main()
