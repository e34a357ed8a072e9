"""An EMA copy from the start, swapped in for evaluation and out again.

truth: GO
why: parameters alone are copied, in place.
"""

import copy

import torch
import torch.distributed as dist
from start import start
from torch.nn.parallel import DistributedDataParallel

device = start()
net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 8)).to(device)
averaged = copy.deepcopy(net).requires_grad_(False)
model = DistributedDataParallel(net)
optimizer = torch.optim.AdamW(model.parameters())
for step in range(30):
    model(torch.randn(4, 8, device=device)).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    with torch.no_grad():
        for mean, now in zip(averaged.parameters(), net.parameters(), strict=True):
            mean.lerp_(now, 0.01)
    if step % 10 == 9:
        kept = {name: value.clone() for name, value in net.state_dict().items()}
        net.load_state_dict(averaged.state_dict())
        with torch.no_grad():
            print(net(torch.randn(4, 8, device=device)).mean().item())
        net.load_state_dict(kept)
dist.destroy_process_group()
