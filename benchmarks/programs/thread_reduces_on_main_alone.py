"""The thread that logs the mean loss is started on rank 0 alone, and reduces over all ranks.

truth: NO-GO
says: Timed out|Connection closed|wait timeout
why: rank 1 never comes to the thread's all_reduce; rank 0 waits for its thread before it ends.
"""

import threading

import torch
import torch.distributed as dist
from start import start
from torch.nn.parallel import DistributedDataParallel

device = start()
logging_group = dist.new_group()
losses = []
failures = []


def log():
    try:
        mean = torch.tensor([sum(losses) / max(len(losses), 1)], device=device)
        dist.all_reduce(mean, group=logging_group)
        print("mean loss", mean.item())
    except Exception as error:
        failures.append(error)


model = DistributedDataParallel(torch.nn.Linear(8, 4).to(device))
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(12):
    loss = model(torch.randn(4, 8, device=device)).pow(2).mean()
    loss.backward()
    losses.append(loss.item())
    optimizer.step()
    optimizer.zero_grad()
if dist.get_rank() == 0:
    thread = threading.Thread(target=log)
    thread.start()
    thread.join()
if failures:
    raise failures[0]
dist.barrier()
dist.destroy_process_group()
