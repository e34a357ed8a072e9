"""The labels of a file are names; they are mapped to classes in their sorted order, the same on all ranks.

truth: GO
ranks: 2
why: the head has as many classes as there are names, and each name has its number.
"""

import json
from pathlib import Path

import torch
import torch.distributed as dist
from start import start
from torch.nn.parallel import DistributedDataParallel

device = start()
rank = dist.get_rank()
rows = [{"x": [float(index)] * 8, "label": "abcd"[index % 4]} for index in range(32)]
file = Path(f"rows-{rank}.jsonl")
file.write_text("\n".join(json.dumps(row) for row in rows))
read = [json.loads(line) for line in file.read_text().splitlines()]
number = {name: index for index, name in enumerate(sorted({row["label"] for row in read}))}
model = DistributedDataParallel(torch.nn.Linear(8, len(number)).to(device))
optimizer = torch.optim.AdamW(model.parameters())
for start_at in range(0, 32, 8):
    batch = read[start_at : start_at + 8]
    x = torch.tensor([row["x"] for row in batch], device=device)
    y = torch.tensor([number[row["label"]] for row in batch], device=device)
    torch.nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
