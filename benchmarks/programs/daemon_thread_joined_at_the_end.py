"""Rank 0's daemon thread averages the losses over all ranks; the program joins it before it ends.

truth: NO-GO
says: (?i)connection|timed out|timeout
why: a daemon thread doesn't keep a process alive, but join() waits for it, and rank 1 never comes to its all_reduce.
"""

import queue
import threading

import torch
import torch.distributed as dist
from start import start
from torch.nn.parallel import DistributedDataParallel

device = start()
logging_group = dist.new_group()
losses = queue.Queue()
failures = []


def log():
    try:
        while (loss := losses.get()) is not None:
            mean = torch.tensor([loss], device=device)
            dist.all_reduce(mean, group=logging_group)
            print("mean loss", mean.item() / 2)
    except Exception as error:
        failures.append(error)


is_main = dist.get_rank() == 0
thread = threading.Thread(target=log, daemon=True)
if is_main:
    thread.start()
model = DistributedDataParallel(torch.nn.Linear(8, 4).to(device))
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(12):
    loss = model(torch.randn(4, 8, device=device)).pow(2).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.put(loss.item())
losses.put(None)
if is_main:
    thread.join()
if failures:
    raise failures[0]
dist.barrier()
dist.destroy_process_group()
