"""A loop that saves in the background, in the way of the first argument, each second step.

By torch.distributed.checkpoint: ``awaited``; ``ends`` (the program ends without waiting for its last save),
``destroys`` (and destroys its process group), ``leaves`` (by os._exit); ``overlaps`` (the next save begins while the
last may be under way), ``rotates`` (removes the save before as soon as the call returns), ``marks`` (says at once that
it is complete), ``shared`` (stages its state in /dev/shm). By a thread of its own and torch.save: ``thread``, which
Python waits for; ``daemon``, for which it doesn't.
"""

import copy
import json
import os
import pathlib
import shutil
import sys
import threading

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard


def shm_used() -> int:
    there = os.statvfs("/dev/shm")
    return (there.f_blocks - there.f_bfree) * there.f_frsize


def write(state: dict[str, object]) -> None:
    with open("ck.pt", "wb") as file:
        torch.save(state, file)


how = sys.argv[1]
own = how in ("thread", "daemon")
cuda = torch.cuda.is_available()
dist.init_process_group("cuda:nccl,cpu:gloo" if cuda else "gloo")
if cuda:
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
device = "cuda" if cuda else "cpu"
group = dist.new_group(backend="gloo")
at_start = shm_used()
dist.barrier()
rank = dist.get_rank()
torch.manual_seed(1)
model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 8)).to(device)
if not own:
    fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
start, newest = 0, None
if how == "marks":
    newest = json.loads(pathlib.Path("ck/latest").read_text()) if os.path.exists("ck/latest") else None
elif not own:
    found = [int(name.parent.name) for name in pathlib.Path("ck").glob("*/.metadata")]
    newest = max(found, default=None)
if own and os.path.exists("ck.pt"):
    both = torch.load("ck.pt", map_location=device)
    model.load_state_dict(both["model"])
    optimizer.load_state_dict(both["optimizer"])
    start = both["step"]
if newest is not None:
    weights, states = get_state_dict(model, optimizer)
    both = {"model": weights, "optimizer": states}
    dcp.load(both, checkpoint_id=f"ck/{newest}")
    set_state_dict(model, optimizer, model_state_dict=both["model"], optim_state_dict=both["optimizer"])
    start = newest
rows = torch.randn(40, 64, generator=torch.Generator().manual_seed(3)).split(2)
under_way = None
stager = DefaultStager(StagingOptions(cuda, True, False, False)) if how == "shared" else None
last = start + 6
for step, batch in enumerate(rows, 1):
    if step <= start:
        continue
    model(batch.to(device)).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    if step % 2 == 0:
        if own:
            if under_way is not None:
                under_way.join()
            if rank == 0:
                state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
                under_way = threading.Thread(target=write, args=(copy.deepcopy(state),), daemon=how == "daemon")
                under_way.start()
        else:
            if under_way is not None and how != "overlaps":
                under_way.result()
            weights, states = get_state_dict(model, optimizer)
            both = {"model": weights, "optimizer": states}
            under_way = dcp.async_save(both, checkpoint_id=f"ck/{step}", process_group=group, async_stager=stager)
            if how == "shared":
                dist.barrier()
                print("shm", shm_used() - at_start, flush=True)
            if rank == 0 and how == "rotates" and step > start + 2:
                shutil.rmtree(f"ck/{step - 2}", ignore_errors=True)
            if rank == 0 and how == "marks":
                os.makedirs("ck", exist_ok=True)
                pathlib.Path("ck/latest").write_text(json.dumps(step))
    if step == last:
        break
if how in ("awaited", "overlaps") and under_way is not None:
    under_way.result()
if how in ("awaited", "destroys"):
    dist.destroy_process_group()
if how == "leaves":
    os._exit(0)
