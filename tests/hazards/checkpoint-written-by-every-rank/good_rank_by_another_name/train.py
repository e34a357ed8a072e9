import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("nccl")
r = int(os.environ["LOCAL_RANK"])
master_process = r == 0
torch.cuda.set_device(r)
model = DistributedDataParallel(torch.nn.Linear(8, 8).to(r), device_ids=[r])
for step in range(100):
    model(torch.randn(2, 8, device=r)).sum().backward()
    if r == 0 and step % 10 == 0:
        torch.save(model.module.state_dict(), "step.pt")
if master_process:
    torch.save(model.module.state_dict(), "last.pt")
