"""One rank skips the backward of a batch whose loss is past its own limit, and goes on to the next batch.

truth: NO-GO
ranks: 2
says: timed out|Timed out|closed|reset
why: a rank whose loss is above its limit skips backward, so the other waits in the reduction of gradients.
"""

import torch
import torch.distributed as dist
from start import start
from torch.nn.parallel import DistributedDataParallel

device = start()
rank = dist.get_rank()
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(16, 1).to(device))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
limits = {0: float("inf"), 1: -1.0}
for step in range(6):
    loss = model(torch.randn(4, 16, device=device)).pow(2).mean()
    if step == 3 and rank == 1 and limits[rank] < 0:
        continue
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
dist.barrier()
dist.destroy_process_group()
