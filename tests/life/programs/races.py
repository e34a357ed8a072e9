"""A loop of several ranks whose saves, in the way of the first argument, are in no order between the ranks.

``all``: every rank writes the file; ``read``: the others read what rank 0 writes; ``remove``: rank 0 removes the folder
that the others write to; ``rename``: every rank renames it; ``parts``: none of it. ``barrier``: all ranks wait.
"""

import os
import shutil
import sys

import torch
import torch.distributed as dist
from torch import nn

how, barrier = sys.argv[1], "barrier" in sys.argv
on_gpu = torch.cuda.is_available()
dist.init_process_group("nccl" if on_gpu else "gloo")
rank = dist.get_rank()
device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpu else torch.device("cpu")
model = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 8)).to(device)
wrapped = nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
resumes = os.path.isdir("ck")
if resumes:
    model.load_state_dict(torch.load("ck/model.pt", map_location=device))
if os.path.exists(f"ck/optimizer_{rank}.pt"):
    optimizer.load_state_dict(torch.load(f"ck/optimizer_{rank}.pt", map_location=device))
dist.barrier()


def save(folder: str) -> None:
    os.makedirs(folder, exist_ok=True)
    if how == "all" or rank == 0:
        torch.save(model.state_dict(), f"{folder}/model.pt")
    if barrier:
        dist.barrier()
    torch.save(optimizer.state_dict(), f"{folder}/optimizer_{rank}.pt")


for step in range(1, 6):
    wrapped(torch.randn(4, 64, device=device)).pow(2).mean().backward()
    optimizer.step()
    wrapped.zero_grad()
    if step != 2 or resumes:
        continue
    if how == "remove":
        if rank == 0:
            shutil.rmtree("ck", ignore_errors=True)
        if barrier:
            dist.barrier()
    save("ck.tmp" if how == "rename" else "ck")
    if how == "rename":
        dist.barrier()
        if rank == 0 or not barrier:
            try:
                os.rename("ck.tmp", "ck")
            except FileNotFoundError:
                print("another rank has renamed it")
    if how == "read" and rank:
        try:
            torch.load("ck/model.pt", map_location=device)
        except (FileNotFoundError, EOFError, RuntimeError):
            print("it is not there yet")
dist.destroy_process_group()
