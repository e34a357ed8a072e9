"""The checkpoint is written by torch.distributed.checkpoint, on rank 0 alone, as torch.save would be.

truth: NO-GO
says: (?i)connection|timed out|timeout
why: dcp.save plans with all ranks of the group; rank 1 is at the barrier behind it.
"""

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from start import start
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.nn.parallel import DistributedDataParallel

device = start()
model = DistributedDataParallel(torch.nn.Linear(8, 4).to(device))
optimizer = torch.optim.AdamW(model.parameters())


def save(step):
    weights, states = get_state_dict(model, optimizer)
    if dist.get_rank() == 0:
        dcp.save({"model": weights, "optimizer": states}, checkpoint_id=f"step-{step}")
    dist.barrier()


for step in range(1, 17):
    model(torch.randn(4, 8, device=device)).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    if step % 8 == 0:
        save(step)
dist.destroy_process_group()
