"""A signal asks for a checkpoint; whether one came is agreed by all ranks at each step.

truth: GO
why: all ranks save and stop at the same step.
"""

import os
import signal

import torch
import torch.distributed as dist
from start import start
from torch.nn.parallel import DistributedDataParallel

asked = False


def ask(*_):
    global asked
    asked = True


signal.signal(signal.SIGUSR1, ask)
device = start()
model = DistributedDataParallel(torch.nn.Linear(8, 4).to(device))
optimizer = torch.optim.AdamW(model.parameters())
for step in range(20):
    model(torch.randn(4, 8, device=device)).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    if step == 11 and dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGUSR1)
    flag = torch.tensor([float(asked)], device=device)
    dist.all_reduce(flag, op=dist.ReduceOp.MAX)
    if flag.item():
        if dist.get_rank() == 0:
            torch.save(model.module.state_dict(), "asked.pt")
        dist.barrier()
        break
dist.destroy_process_group()
