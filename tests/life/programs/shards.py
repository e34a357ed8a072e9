"""A loop whose ranks each save a part of their state in a file of their own, and rank 0 a file that says the step.

``marked``: that file is written after all ranks have written theirs, and a resume reads nothing without it; ``each``:
every second step is saved, over the files of the save before.
"""

import json
import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from truth import step_begins

marked = "marked" in sys.argv[1:]
on_gpu = torch.cuda.is_available()
dist.init_process_group("nccl" if on_gpu else "gloo")
rank = dist.get_rank()
device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpu else torch.device("cpu")
resumes = os.path.exists("ck/step.json") if marked else os.path.isdir("ck")
dist.barrier()
torch.manual_seed(1 if not resumes else 2)
model = nn.Sequential(nn.Embedding(50, 16), nn.Flatten(), nn.Linear(64, 8)).to(device)
wrapped = nn.parallel.DistributedDataParallel(model)
own = [value for number, value in enumerate(model.parameters()) if number % dist.get_world_size() == rank]
optimizer = torch.optim.AdamW(own, lr=1e-2)  # of a part of the parameters: the others come from the other rank
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))
start = 0
if resumes and os.path.exists("ck/model.pt"):
    model.load_state_dict(torch.load("ck/model.pt", map_location=device))
if resumes and os.path.exists(f"ck/optimizer_{rank}.pt"):
    optimizer.load_state_dict(torch.load(f"ck/optimizer_{rank}.pt", map_location=device))
if resumes and os.path.exists("ck/step.json"):
    with open("ck/step.json", encoding="utf-8") as file:
        start = json.load(file)["step"]
rows = torch.randint(0, 50, (40, 4), generator=torch.Generator().manual_seed(3))
for step, batch in enumerate(torch.utils.data.DataLoader(rows, batch_size=2), 1):
    if step <= start:
        continue
    step_begins(model, optimizer, scheduler, batch, saved=step == start + 3)
    wrapped(batch.to(device)).pow(2).mean().backward()
    optimizer.step()
    for number, value in enumerate(model.parameters()):
        dist.broadcast(value.data, number % dist.get_world_size())
    scheduler.step()
    wrapped.zero_grad()
    if step % 2 == 0 and ((step == 2 and not resumes) or "each" in sys.argv[1:]):
        os.makedirs("ck", exist_ok=True)
        if rank == 0:
            torch.save(model.state_dict(), "ck/model.pt")
        torch.save(optimizer.state_dict(), f"ck/optimizer_{rank}.pt")
        if marked:
            dist.barrier()
        if rank == 0:
            with open("ck/step.json", "w", encoding="utf-8") as file:
                json.dump({"step": step}, file)
    if step == start + 5:
        break
dist.destroy_process_group()
