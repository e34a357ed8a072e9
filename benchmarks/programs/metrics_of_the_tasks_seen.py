"""Several tasks in one run; at the end of an epoch the mean of each task that was seen is reduced over the ranks.

truth: NO-GO
says: (?i)connection|timed out|timeout
why: a rare task is in rank 0's rows alone, so rank 0 reduces a mean more than rank 1.
"""

from collections import defaultdict

import torch
import torch.distributed as dist
from start import start
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

TASKS = ["caption", "question", "ocr"]
rows = [{"row": torch.full((8,), float(number)), "task": TASKS[number % 2]} for number in range(48)]
rows[20]["task"] = "ocr"
device = start()
sampler = DistributedSampler(rows, shuffle=False)
loader = DataLoader(rows, batch_size=4, sampler=sampler)
model = DistributedDataParallel(torch.nn.Linear(8, 4).to(device))
optimizer = torch.optim.AdamW(model.parameters())
for epoch in range(2):
    sums, counts = defaultdict(lambda: torch.zeros((), device=device)), defaultdict(int)
    for batch in loader:
        losses = model(batch["row"].to(device)).square().mean(-1)
        losses.mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        for task, loss in zip(batch["task"], losses.detach(), strict=True):
            sums[task] += loss
            counts[task] += 1
    for task in sorted(sums):
        mean = sums[task] / counts[task]
        dist.all_reduce(mean)
        if dist.get_rank() == 0:
            print(epoch, task, mean / dist.get_world_size())
dist.barrier()
dist.destroy_process_group()
