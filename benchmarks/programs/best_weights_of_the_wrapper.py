"""The best weights are kept from the DDP wrapper, and loaded into the plain model when the loop has ended.

truth: NO-GO
says: Missing key|Unexpected key
why: the wrapper's names begin with "module.".
"""

import torch
import torch.distributed as dist
from start import start
from torch.nn.parallel import DistributedDataParallel


def build():
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 4))


device = start()
model = DistributedDataParallel(build().to(device))
optimizer = torch.optim.AdamW(model.parameters())
for step in range(20):
    model(torch.randn(4, 8, device=device)).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    if step == 9 and dist.get_rank() == 0:
        torch.save(model.state_dict(), "best.pt")
dist.barrier()
final = build().to(device)
final.load_state_dict(torch.load("best.pt", map_location=device))
print(final(torch.randn(4, 8, device=device)).mean().item())
