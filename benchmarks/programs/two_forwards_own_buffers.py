"""The same two forwards with broadcast_buffers=False.

truth: GO
why: BatchNorm's own update of its statistics counts as no change of what backward needs.
"""

import torch
import torch.distributed as dist
from start import start
from torch.nn.parallel import DistributedDataParallel

device = start()
critic = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
critic = DistributedDataParallel(critic.to(device), broadcast_buffers=False)
optimizer = torch.optim.AdamW(critic.parameters())
for _ in range(6):
    real = critic(torch.randn(8, 8, device=device))
    made = critic(torch.rand(8, 8, device=device))
    (made.mean() - real.mean()).backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
