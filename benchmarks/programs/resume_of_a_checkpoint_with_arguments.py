"""Each epoch's checkpoint keeps the arguments beside the weights, and the best one is loaded for the last evaluation.

truth: NO-GO
says: (?i)weights_only|WeightsUnpickler
why: since torch 2.6 torch.load reads weights alone, and a Namespace is none.
"""

import argparse

import torch
import torch.distributed as dist
from start import start
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--lr", type=float, default=1e-3)
arguments = parser.parse_args()
device = start()
model = DistributedDataParallel(torch.nn.Linear(8, 4).to(device))
optimizer = torch.optim.AdamW(model.parameters(), lr=arguments.lr)
for epoch in range(arguments.epochs):
    for _ in range(5):
        model(torch.randn(4, 8, device=device)).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    if dist.get_rank() == 0:
        torch.save({"model": model.module.state_dict(), "epoch": epoch, "args": arguments}, "best.pth")
    dist.barrier()
kept = torch.load("best.pth", map_location="cpu")
model.module.load_state_dict(kept["model"])
with torch.no_grad():
    print(kept["epoch"], model(torch.randn(4, 8, device=device)).mean().item())
dist.destroy_process_group()
