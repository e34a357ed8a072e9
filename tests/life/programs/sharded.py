"""FSDP2 with torch.distributed.checkpoint: ``by-name``, or by raw state dicts (``raw``), or into other groups."""

import os
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard

how = sys.argv[1] if len(sys.argv) > 1 else "by-name"
cuda = torch.cuda.is_available()
dist.init_process_group("nccl" if cuda else "gloo")
if cuda:
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
device = "cuda" if cuda else "cpu"
torch.manual_seed(1)
model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 8)).to(device)
for layer in model:
    if isinstance(layer, nn.Linear):
        fully_shard(layer)
fully_shard(model)
resumes = os.path.isdir("ck")
parameters = list(model.parameters())
groups = parameters if not (resumes and how == "groups") else list(reversed(parameters))
optimizer = torch.optim.AdamW(groups, lr=1e-3)
start = 0
if resumes:
    if how == "by-name":
        weights, states = get_state_dict(model, optimizer)
        both = {"model": weights, "optimizer": states}
        dcp.load(both, checkpoint_id="ck")
        set_state_dict(model, optimizer, model_state_dict=both["model"], optim_state_dict=both["optimizer"])
    else:
        both = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        if how == "groups":  # the states are there to be filled, and go by their position
            for parameter in groups:
                optimizer.state[parameter] = {
                    "step": torch.tensor(0.0), "exp_avg": torch.zeros_like(parameter),
                    "exp_avg_sq": torch.zeros_like(parameter),
                }  # fmt: skip
            both["optimizer"] = optimizer.state_dict()
        dcp.load(both, checkpoint_id="ck", planner=dcp.DefaultLoadPlanner(allow_partial_load=True))
        model.load_state_dict(both["model"])
        optimizer.load_state_dict(both["optimizer"])
    start = 2
rows = torch.randn(40, 64, generator=torch.Generator().manual_seed(3)).split(2)
for step, batch in enumerate(rows, 1):
    if step <= start:
        continue
    model(batch.to(device)).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    if step == 2:
        if how == "by-name":
            weights, states = get_state_dict(model, optimizer)
            dcp.save({"model": weights, "optimizer": states}, checkpoint_id="ck")
        else:
            dcp.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, checkpoint_id="ck")
    if step == 5:
        break
