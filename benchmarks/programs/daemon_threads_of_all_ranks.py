"""A daemon thread of each rank averages the losses on a group of its own, and is joined before the end.

truth: GO
why: each rank's thread gets as many losses, and makes as many reductions, in a group that training does not use.
"""

import queue
import threading

import torch
import torch.distributed as dist
from start import start
from torch.nn.parallel import DistributedDataParallel

device = start()
logging_group = dist.new_group(backend="gloo")
losses = queue.Queue()


def log():
    while (loss := losses.get()) is not None:
        mean = torch.tensor([loss])
        dist.all_reduce(mean, group=logging_group)


thread = threading.Thread(target=log, daemon=True)
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
thread.join()
dist.barrier()
dist.destroy_process_group()
