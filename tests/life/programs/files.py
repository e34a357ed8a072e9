"""A loop that saves its state in several files and resumes from those that are there.

``atomic``: they are written to another folder, which is renamed when all of them are there; ``each``: also after it was
resumed, every second step, over the files of the save before.
"""

import json
import os
import shutil
import sys

import torch
from torch import nn
from truth import step_begins

options = set(sys.argv[1:])
device = "cuda" if torch.cuda.is_available() else "cpu"
resumes = os.path.isdir("ck")
torch.manual_seed(1 if not resumes else 2)
model = nn.Sequential(nn.Embedding(50, 16), nn.Flatten(), nn.Linear(64, 8)).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))
start = 0
for name, part in (("model", model), ("optimizer", optimizer), ("scheduler", scheduler)):
    if os.path.exists(f"ck/{name}.pt"):
        part.load_state_dict(torch.load(f"ck/{name}.pt", map_location=device))
if os.path.exists("ck/step.json"):
    with open("ck/step.json", encoding="utf-8") as file:
        start = json.load(file)["step"]
rows = torch.randint(0, 50, (40, 4), generator=torch.Generator().manual_seed(3))
for step, batch in enumerate(torch.utils.data.DataLoader(rows, batch_size=2), 1):
    if step <= start:
        continue
    step_begins(model, optimizer, scheduler, batch, saved=step == start + 3)
    model(batch.to(device)).pow(2).mean().backward()
    optimizer.step()
    scheduler.step()
    optimizer.zero_grad()
    if step % 2 == 0 and (not resumes or "each" in options):
        folder = "ck.tmp" if "atomic" in options else "ck"
        os.makedirs(folder, exist_ok=True)
        for name, part in (("model", model), ("optimizer", optimizer), ("scheduler", scheduler)):
            torch.save(part.state_dict(), f"{folder}/{name}.pt")
        with open(f"{folder}/step.json", "w", encoding="utf-8") as file:
            json.dump({"step": step}, file)
        if "atomic" in options:
            shutil.rmtree("ck", ignore_errors=True)
            os.rename("ck.tmp", "ck")
    if step == start + 5:
        break
