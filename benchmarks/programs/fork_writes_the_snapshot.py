"""Rank 0 copies the weights to the host and forks; the child writes them and leaves by os._exit, the parent asks how.

truth: GO
why: the child touches no device and no group, and its status is read.
"""

import os
import signal
import sqlite3

import torch
import torch.distributed as dist
from start import start
from torch.nn.parallel import DistributedDataParallel

device = start()
model = DistributedDataParallel(torch.nn.Linear(8, 4).to(device))
optimizer = torch.optim.AdamW(model.parameters())
signal.signal(signal.SIGUSR1, lambda *_: None)
child = 0
for step in range(12):
    model(torch.randn(4, 8, device=device)).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    if dist.get_rank() == 0 and step % 5 == 4:
        if child:
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        kept = {name: value.detach().cpu().clone() for name, value in model.module.state_dict().items()}
        child = os.fork()
        if not child:
            torch.save(kept, f"step-{step}.pt")
            os._exit(0)
        with sqlite3.connect("runs.db") as runs:
            runs.execute("create table if not exists saves (step integer)")
            runs.execute("insert into saves values (?)", (step,))
if child:
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert sqlite3.connect("runs.db").execute("select count(*) from saves").fetchone()[0] == 2
dist.barrier()
dist.destroy_process_group()
