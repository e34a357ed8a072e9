import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 2)).cuda()
for layer in model:
    fully_shard(layer)
fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(100):
    model(torch.randn(4, 8, device="cuda")).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
whole = {name: value.full_tensor().cpu() for name, value in model.state_dict().items()}
if dist.get_rank() == 0:
    torch.save(whole, "last.pt")
