"""Tensor parallelism with DTensor: a column-wise and a row-wise layer, clipped, and the whole weights saved at the end.

truth: GO
why: both ranks see the same rows and make the same collectives; full_tensor is called by both.
"""

import torch
import torch.distributed as dist
from start import start
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

device = start()
mesh = init_device_mesh(device.type, (dist.get_world_size(),), mesh_dim_names=("tp",))
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.GELU(), torch.nn.Linear(32, 4)).to(device)
model = parallelize_module(model, mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
for step in range(6):
    torch.manual_seed(step)
    model(torch.randn(4, 8, device=device)).pow(2).mean().backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=False)
    optimizer.step()
    optimizer.zero_grad()
whole = {
    name: value.full_tensor().cpu() if hasattr(value, "full_tensor") else value.cpu()
    for name, value in model.state_dict().items()
}
assert whole["0.weight"].shape == (32, 8)
if dist.get_rank() == 0:
    torch.save(whole, "whole.pt")
dist.barrier()
dist.destroy_process_group()
