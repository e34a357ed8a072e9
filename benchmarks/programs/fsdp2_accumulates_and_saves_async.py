"""FSDP2 that syncs every second batch, reduces in float32, and writes its checkpoint in the background.

truth: GO
why: all ranks set the same flags, call the same saves, and wait for the future before they go on.
"""

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from start import start
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

device = start()
if device.type == "cuda":
    dist.new_group(backend="gloo")
model = torch.nn.Sequential(*[torch.nn.Linear(16, 16) for _ in range(3)]).to(device)
policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
for layer in model:
    fully_shard(layer, mp_policy=policy)
fully_shard(model, mp_policy=policy)
optimizer = torch.optim.AdamW(model.parameters())
for step in range(8):
    model.set_requires_gradient_sync(step % 2 == 1)
    model(torch.randn(4, 16, device=device)).float().pow(2).mean().backward()
    if step % 2 == 1:
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
weights, states = get_state_dict(model, optimizer)
cpu = dist.new_group(backend="gloo")
dcp.async_save({"model": weights, "optimizer": states}, checkpoint_id="kept", process_group=cpu).result()
dist.barrier()
weights, states = get_state_dict(model, optimizer)
kept = {"model": weights, "optimizer": states}
dcp.load(kept, checkpoint_id="kept")
set_state_dict(model, optimizer, model_state_dict=kept["model"], optim_state_dict=kept["optimizer"])
dist.destroy_process_group()
