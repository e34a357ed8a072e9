"""Two stages of a pipeline, four micro-batches, the loss on the last one.

truth: GO
why: each rank has its stage, and the schedule sends what the other one receives.
"""

import torch
import torch.distributed as dist
from start import start
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

device = start()
rank, world = dist.get_rank(), dist.get_world_size()
block = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.GELU()).to(device)
stage = PipelineStage(block, rank, world, device)
schedule = ScheduleGPipe(stage, n_microbatches=4, loss_fn=torch.nn.functional.mse_loss)
optimizer = torch.optim.AdamW(block.parameters())
for _ in range(4):
    optimizer.zero_grad()
    if rank == 0:
        schedule.step(torch.randn(8, 16, device=device))
    else:
        losses = []
        schedule.step(target=torch.zeros(8, 16, device=device), losses=losses)
        assert len(losses) == 4
    optimizer.step()
dist.barrier()
dist.destroy_process_group()
