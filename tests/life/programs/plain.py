"""A loop with DDP where there are several ranks; what it leaves out of the resume is in its arguments."""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from truth import kill_after_save, tell

without = set(sys.argv[1:])
cuda = torch.cuda.is_available()
device = "cuda" if cuda else "cpu"
world, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
if world > 1:
    dist.init_process_group("nccl" if cuda else "gloo")
    if cuda:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
torch.manual_seed(1 if not os.path.exists("ck.pt") else 2)
layers = nn.Embedding(50, 16), nn.Flatten(), nn.Dropout(0.1), nn.Linear(64, 64), nn.Linear(64, 64)
model = nn.Sequential(*layers).to(device)
wrapped = nn.parallel.DistributedDataParallel(model) if world > 1 else model
optimizer = torch.optim.AdamW(wrapped.parameters(), lr=1e-2)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))
rows = torch.randint(0, 50, (40, 4), generator=torch.Generator().manual_seed(3))
start, rng = 0, None
resumes = os.path.exists("ck.pt")
if os.path.exists("ck.pt"):
    saved = torch.load("ck.pt", map_location="cpu", weights_only=False)
    weights = saved["model"]
    if "prefix" in without:
        weights = {f"net.{name}": value for name, value in weights.items()}
    if "half" in without:
        weights = {name: value for name, value in weights.items() if "bias" not in name}
    model.load_state_dict(weights, strict=False)
    if "optimizer" not in without:
        state = saved["optimizer"]
        if "swapped" in without:
            state["state"][1], state["state"][3] = state["state"][3], state["state"][1]
        if "step" in without:
            for one in state["state"].values():
                one["step"] = torch.zeros_like(one["step"])
        optimizer.load_state_dict(state)
    if "scheduler" not in without:
        scheduler.load_state_dict(saved["scheduler"])
    if "data" not in without:
        start = saved["step"]
    rng = saved["rng"]
loader = iter(torch.utils.data.DataLoader(rows, batch_size=2))
if rng is not None and "rng" not in without:
    torch.set_rng_state(rng)
step = 0
for batch in loader:
    step += 1
    if step <= start:
        continue
    if rng is not None:
        tell("resumed", model, optimizer, scheduler, batch)
        rng = None
    elif step == 3 and not resumes:
        tell("next", model, optimizer, scheduler, batch)
        kill_after_save()
    loss = wrapped(batch.to(device)).pow(2).mean()
    loss.backward()
    optimizer.step()
    scheduler.step()
    optimizer.zero_grad()
    if step == 2 and not resumes:
        tell("saved", model, optimizer, scheduler, batch)
        if rank == 0:
            torch.save(
                {
                    "model": model.state_dict(), "optimizer": optimizer.state_dict(),
                    "scheduler": scheduler.state_dict(), "step": step, "rng": torch.get_rng_state(),
                },
                "ck.pt",
            )  # fmt: skip
        if world > 1:
            dist.barrier()
    if step == 6:
        break
