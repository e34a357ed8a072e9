"""A small training, plain or with real DeepSpeed, into which one failure is brought: ``injected.py WHAT [ENGINE]``.

ENGINE: ``ddp`` (torch alone) or ``zero1``, ``zero2``, ``zero3``. The failure comes on rank 1, at step 4.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

WORDS = [word for word in sys.argv[1:] if not word.startswith("--")]  # DeepSpeed's launcher adds --local_rank
WHAT = WORDS[0]
ENGINE = WORDS[1] if len(WORDS) > 1 else "ddp"
STEPS = int(os.environ.get("STEPS", "8"))
AT = 4
ODD = 1


class Tower(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(8, 8)
        self.offset = torch.zeros(8)
        self.step = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if WHAT == "left-behind" and dist.get_rank() == ODD and self.step == AT:
            self.offset = self.offset.to("meta")
            return torch.cat([self.project(x), self.offset.expand_as(x)]).sum()
        return self.project(x) + self.offset


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tower = Tower()
        self.head = nn.Linear(8, 4 if WHAT == "other-model" and dist.get_rank() == ODD else 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.tower(x)).pow(2).mean()


def plain() -> tuple[Any, Callable[[torch.Tensor], None]]:
    model = nn.parallel.DistributedDataParallel(Model())
    optimizer = torch.optim.AdamW(model.parameters())

    def step(batch: torch.Tensor) -> None:
        model(batch).backward()
        optimizer.step()
        optimizer.zero_grad()

    return model, step


def with_deepspeed(stage: int) -> tuple[Any, Callable[[torch.Tensor], None]]:
    import deepspeed

    config = {
        "train_micro_batch_size_per_gpu": 4 if WHAT == "other-config" and dist.get_rank() == ODD else 2,
        "optimizer": {"type": "AdamW", "params": {"lr": 0.001, "torch_adam": True}},
        "zero_optimization": {"stage": stage},
    }
    model = Model()
    engine, *_ = deepspeed.initialize(model=model, config=config, model_parameters=model.parameters())

    def step(batch: torch.Tensor) -> None:
        engine.backward(engine(batch))
        engine.step()

    return engine, step


if ENGINE == "ddp":
    dist.init_process_group("gloo")
else:
    import deepspeed

    deepspeed.init_distributed("gloo")
rank = dist.get_rank()
if WHAT == "other-version":
    installed = ModuleType("xformers")
    installed.__version__ = "0.0.29" if rank == ODD else "0.0.30"  # type: ignore[attr-defined]
    sys.modules["xformers"] = installed
torch.manual_seed(7)
model, step = plain() if ENGINE == "ddp" else with_deepspeed(int(ENGINE[-1]))
tower = next(module for module in model.modules() if isinstance(module, Tower))
kept = []
for number in range(STEPS):
    tower.step = number
    if rank == ODD and number == AT:
        if WHAT == "raises":
            raise ValueError("a sample without a label")
        if WHAT == "killed":
            os.kill(os.getpid(), 9)
        if WHAT == "exits":
            os._exit(3)
        if WHAT == "segfault":
            os.kill(os.getpid(), 11)
        if WHAT == "stopped":
            os.kill(os.getpid(), 19)
        if WHAT == "sleeps":
            time.sleep(600)
        if WHAT == "leaves":
            break
    if WHAT == "skips" and number == AT and dist.get_rank() != ODD:
        dist.all_reduce(torch.ones(3))
    if WHAT == "other-size" and number == AT:
        dist.all_reduce(torch.ones(3 if rank == ODD else 4))
    if WHAT == "grows" and rank == ODD:
        kept.append(torch.ones(int(os.environ.get("GROWTH", str(40 << 20))) // 4))
    step(torch.ones(2, 8) * (float("nan") if WHAT == "nan" and number == AT else 1.0))
    time.sleep(float(os.environ.get("PAUSE", "0.1")))
print(f"rank {rank} is through", flush=True)
dist.destroy_process_group()
