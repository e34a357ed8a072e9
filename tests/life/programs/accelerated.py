"""accelerate's save_state and load_state; what it leaves out of the resume, and how it trains, is in its arguments.

``rotated``: accelerate names the folders, saves every second step and keeps the newest alone.
"""

import os
import sys

import torch
from accelerate import Accelerator
from accelerate.utils import ProjectConfiguration
from torch import nn
from truth import step_begins

without = set(sys.argv[1:])
plugin = None
if "fsdp2" in without:
    from accelerate import FullyShardedDataParallelPlugin

    plugin = FullyShardedDataParallelPlugin(
        fsdp_version=2, state_dict_type="sharded_state_dict", auto_wrap_policy="transformer_based_wrap",
        transformer_cls_names_to_wrap=["Linear"],
    )  # fmt: skip
named = ProjectConfiguration("state", automatic_checkpoint_naming=True, total_limit=1) if "rotated" in without else None
accelerator = Accelerator(fsdp_plugin=plugin, project_config=named)
torch.manual_seed(1)
model = nn.Sequential(nn.Embedding(50, 16), nn.Flatten(), nn.Linear(64, 64), nn.BatchNorm1d(64), nn.Linear(64, 8))
if "fsdp2" in without:
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))
rows = torch.randint(0, 50, (80, 4), generator=torch.Generator().manual_seed(3))
if "fsdp2" in without:
    rows = torch.randn(80, 64, generator=torch.Generator().manual_seed(3))
loader = torch.utils.data.DataLoader(rows, batch_size=2)
if "scheduler" in without:
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
else:
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
start = 0
if named is not None:
    kept = os.listdir("state/checkpoints") if os.path.isdir("state/checkpoints") else []
    if kept:
        accelerator.load_state()
        named.iteration = max(int(name.rpartition("_")[2]) for name in kept) + 1
        start = 2 * named.iteration
elif os.path.isdir("state"):
    if "optimizer" in without:
        from safetensors.torch import load_file

        accelerator.unwrap_model(model).load_state_dict(load_file("state/model.safetensors"))
    else:
        accelerator.load_state("state")
    start = 2
given = accelerator.skip_first_batches(loader, start) if start and "data" not in without else loader
step = start
for batch in given:
    step += 1
    step_begins(model, optimizer, getattr(scheduler, "scheduler", scheduler), batch, saved=step == start + 3)
    accelerator.backward(model(batch).pow(2).mean())
    optimizer.step()
    scheduler.step()
    optimizer.zero_grad()
    if named is not None and step % 2 == 0:
        accelerator.save_state()
    elif step == 2:
        accelerator.save_state("state")
    if step == start + 6:
        break
