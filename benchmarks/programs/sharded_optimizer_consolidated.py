"""ZeroRedundancyOptimizer with a compression hook; its state is consolidated by all, and saved by rank 0.

truth: GO
why: consolidate_state_dict is called by every rank before rank 0 asks for the state.
"""

import torch
import torch.distributed as dist
from start import start
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

device = start()
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4)).to(device)
model = DistributedDataParallel(model, gradient_as_bucket_view=True)
model.register_comm_hook(dist.group.WORLD, fp16_compress_hook)
optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.AdamW, lr=1e-3)
for _ in range(8):
    model(torch.randn(4, 8, device=device)).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
optimizer.consolidate_state_dict(to=0)
if dist.get_rank() == 0:
    torch.save({"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}, "kept.pt")
dist.barrier()
dist.destroy_process_group()
