"""The same patience, with rank 0's decision broadcast.

truth: GO
why: all ranks leave the loop at the same step.
"""

import torch
import torch.distributed as dist
from start import start
from torch.nn.parallel import DistributedDataParallel

device = start()
model = DistributedDataParallel(torch.nn.Linear(8, 4).to(device))
optimizer = torch.optim.AdamW(model.parameters())
evaluations_without_gain = 0
for step in range(40):
    model(torch.randn(4, 8, device=device)).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    if step % 5 == 4:
        stop = torch.zeros(1, device=device)
        if dist.get_rank() == 0:
            evaluations_without_gain += 1
            stop.fill_(float(evaluations_without_gain == 3))
        dist.broadcast(stop, src=0)
        if stop.item() > 0:
            break
dist.barrier()
dist.destroy_process_group()
