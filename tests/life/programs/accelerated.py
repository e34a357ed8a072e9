"""accelerate's save_state and load_state; what it leaves out of the resume, and how it trains, is in its arguments."""

import os
import sys

import torch
from accelerate import Accelerator
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
accelerator = Accelerator(fsdp_plugin=plugin)
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
if os.path.isdir("state"):
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
    step_begins(model, optimizer, getattr(scheduler, "scheduler", scheduler), batch, saved=step == 3)
    accelerator.backward(model(batch).pow(2).mean())
    optimizer.step()
    scheduler.step()
    optimizer.zero_grad()
    if step == 2:
        accelerator.save_state("state")
    if step == 6:
        break
