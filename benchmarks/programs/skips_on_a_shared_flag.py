"""Whether a batch is skipped is decided by one number that all ranks reduce before backward.

truth: GO
ranks: 2
why: the flag is the maximum over the ranks, so that all skip or none does.
"""

import torch
import torch.distributed as dist
from start import start
from torch.nn.parallel import DistributedDataParallel

device = start()
rank = dist.get_rank()
torch.manual_seed(rank)
model = DistributedDataParallel(torch.nn.Linear(16, 1).to(device))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(8):
    loss = model(torch.randn(4, 16, device=device)).pow(2).mean()
    odd = torch.tensor(float(step == 3 and rank == 1), device=device)
    dist.all_reduce(odd, op=dist.ReduceOp.MAX)
    if odd.item() > 0:
        continue
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
dist.barrier()
dist.destroy_process_group()
