"""FSDP2 with a distributed checkpoint, read back into the same shards.

truth: GO
why: the states of all ranks are written and read by the same names.
"""

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from start import start
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

device = start()
mesh = init_device_mesh(device.type, (dist.get_world_size(),))
model = torch.nn.Sequential(*(torch.nn.Linear(16, 16) for _ in range(3))).to(device)
for layer in model:
    fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(6):
    model(torch.randn(4, 16, device=device)).pow(2).mean().backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
weights, states = get_state_dict(model, optimizer)
dcp.save({"model": weights, "optimizer": states}, checkpoint_id="kept")
dcp.load({"model": weights, "optimizer": states}, checkpoint_id="kept")
set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=states)
dist.barrier()
dist.destroy_process_group()
