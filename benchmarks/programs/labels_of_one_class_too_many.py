"""The labels of a file count from one, the head has one class for each: the last class is past its end.

truth: NO-GO
ranks: 2
says: Target 4 is out of bounds
why: cross_entropy takes classes 0 to 3, and every fourth row is of class 4.
"""

import json
from pathlib import Path

import torch
import torch.distributed as dist
from start import start
from torch.nn.parallel import DistributedDataParallel

device = start()
rank = dist.get_rank()
rows = [{"x": [float(index)] * 8, "label": index % 4 + 1} for index in range(32)]
file = Path(f"rows-{rank}.jsonl")
file.write_text("\n".join(json.dumps(row) for row in rows))
read = [json.loads(line) for line in file.read_text().splitlines()]
classes = len({row["label"] for row in read})
model = DistributedDataParallel(torch.nn.Linear(8, classes).to(device))
optimizer = torch.optim.AdamW(model.parameters())
for start_at in range(0, 32, 8):
    batch = read[start_at : start_at + 8]
    x = torch.tensor([row["x"] for row in batch], device=device)
    y = torch.tensor([row["label"] for row in batch], device=device)
    torch.nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
