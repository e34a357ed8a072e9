"""FSDP2 with torch.distributed.checkpoint, in the way of the first argument.

``by-name``, ``by-name-groups`` (into an optimizer of other groups), ``async``, ``full`` (one file, which all ranks
read; ``full-from-one``: rank 0 gives it to the others, which hangs), ``raw`` state dicts, raw into other ``groups``,
``weights`` alone, and ``one-rank``: rank 0 alone saves its shards. ``by-name each`` saves every second step over the
save before; ``by-name apart`` into a folder of its own, and resumes from the newest that has its metadata.
"""

import os
import pathlib
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_state_dict,
    set_model_state_dict,
    set_state_dict,
)
from torch.distributed.fsdp import fully_shard
from truth import step_begins

how = sys.argv[1] if len(sys.argv) > 1 else "by-name"
cuda = torch.cuda.is_available()
dist.init_process_group("cuda:nccl,cpu:gloo" if cuda else "gloo")
if cuda:
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
device = "cuda" if cuda else "cpu"
repeats = {"each", "apart"} & {*sys.argv[2:]}
folder = "ck"
if "apart" in repeats:
    found = [int(name.parent.name) for name in pathlib.Path("ck").glob("*/.metadata")]
    folder = f"ck/{max(found, default=0)}"
resumes = os.path.exists(folder)
torch.manual_seed(2 if resumes else 1)
model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 8)).to(device)
for layer in model:
    if isinstance(layer, nn.Linear):
        fully_shard(layer)
fully_shard(model)
parameters = list(model.parameters())
other_groups = resumes and how in ("groups", "by-name-groups")
groups = parameters if not other_groups else [{"params": parameters[2:]}, {"params": parameters[:2], "lr": 1e-4}]
optimizer = torch.optim.AdamW(groups, lr=1e-3)
start = 0
if resumes:
    if how in ("by-name", "by-name-groups", "async"):
        weights, states = get_state_dict(model, optimizer)
        both = {"model": weights, "optimizer": states, **dict.fromkeys(("step",) if repeats else (), 0)}
        dcp.load(both, checkpoint_id=folder)
        set_state_dict(model, optimizer, model_state_dict=both["model"], optim_state_dict=both["optimizer"])
    elif how == "weights":
        weights = get_model_state_dict(model)
        dcp.load({"model": weights}, checkpoint_id="ck")
        set_model_state_dict(model, weights)
    elif how in ("full", "full-from-one"):
        both = torch.load("ck/all.pt", map_location="cpu", weights_only=False)
        if how == "full-from-one" and dist.get_rank():
            both = {"model": {}, "optimizer": {}}
        whole = StateDictOptions(full_state_dict=True, cpu_offload=True, broadcast_from_rank0=how == "full-from-one")
        set_state_dict(
            model, optimizer, model_state_dict=both["model"], optim_state_dict=both["optimizer"], options=whole
        )
    elif how == "one-rank":
        shards = torch.load("ck/shards.pt", weights_only=False)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter.to_local().copy_(shards["model"][name])
    else:
        both = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        if how == "groups":  # the states are there to be filled, and go by their position
            for parameter in parameters[2:] + parameters[:2]:
                optimizer.state[parameter] = {
                    "step": torch.tensor(0.0), "exp_avg": torch.zeros_like(parameter),
                    "exp_avg_sq": torch.zeros_like(parameter),
                }  # fmt: skip
            both["optimizer"] = optimizer.state_dict()
        dcp.load(both, checkpoint_id="ck", planner=dcp.DefaultLoadPlanner(allow_partial_load=True))
        model.load_state_dict(both["model"])
        optimizer.load_state_dict(both["optimizer"])
    start = both["step"] if repeats else 2
rows = torch.randn(40, 64, generator=torch.Generator().manual_seed(3)).split(2)
for step, batch in enumerate(rows, 1):
    if step <= start:
        continue
    step_begins(model, optimizer, None, batch, saved=step == start + 3)
    model(batch.to(device)).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    if step == 2 or (step % 2 == 0 and repeats):
        if how in ("by-name", "by-name-groups", "async", "weights"):
            weights, states = get_state_dict(model, optimizer)
            state = {"model": weights, "optimizer": states} if how != "weights" else {"model": weights}
            if how == "async":
                dcp.async_save(state, checkpoint_id="ck").result()
            elif repeats:
                dcp.save({**state, "step": step}, checkpoint_id=f"ck/{step}" if "apart" in repeats else "ck")
            else:
                dcp.save(state, checkpoint_id="ck")
        elif how in ("full", "full-from-one"):
            weights, states = get_state_dict(
                model, optimizer, options=StateDictOptions(full_state_dict=True, cpu_offload=True)
            )
            if dist.get_rank() == 0:
                os.makedirs("ck")
                torch.save({"model": weights, "optimizer": states}, "ck/all.pt")
            dist.barrier()
        elif how == "one-rank":
            if dist.get_rank() == 0:
                os.makedirs("ck")
                torch.save({"model": {name: one.to_local() for name, one in model.named_parameters()}}, "ck/shards.pt")
            dist.barrier()
        else:
            dcp.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, checkpoint_id="ck")
    if step == start + 5:
        break
