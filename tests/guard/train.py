"""A small training with real DeepSpeed, in which one thing goes wrong: ``train.py WHAT``."""

from __future__ import annotations

import os
import sys
import time

import deepspeed
import torch
import torch.distributed as dist
from torch import nn

WHAT = sys.argv[1]
STEPS = 6


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(8, 8)
        self.register_buffer("scale", torch.ones(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if WHAT == "shape" and dist.get_rank() == 1 and step == 3:
            x = x[:, :5]
        return x + self.project(x) * self.scale


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Block(), Block()])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x.pow(2).mean()


deepspeed.init_distributed("gloo")
rank = dist.get_rank()
if WHAT == "differs" and rank == 1:
    os.environ["NCCL_ALGO"] = "Ring"
config = {
    "train_micro_batch_size_per_gpu": 2,
    "gradient_accumulation_steps": 2,
    "optimizer": {"type": "AdamW", "params": {"lr": 0.001, "torch_adam": True}},
    "zero_optimization": {"stage": int(os.environ.get("STAGE", "3")), "stage3_param_persistence_threshold": 0},
}
torch.manual_seed(7)
model = Model()
engine, *_ = deepspeed.initialize(model=model, config=config, model_parameters=model.parameters())
for step in range(STEPS):
    if WHAT == "sleeps" and rank == 1 and step == 4:
        time.sleep(9)
    if WHAT == "partitioned" and step == 2:
        print(torch.ones(2, 8) @ model.layers[0].project.weight)
    for _ in range(2):
        loss = engine(torch.ones(2, 8) * (float("nan") if WHAT == "nan" and step == 4 else 1.0))
        engine.backward(loss)
        engine.step()
if WHAT == "differs":
    import gonogo

    found = gonogo.compare_ranks(engine, facts={"of my own": rank})
    print(f"rank {rank}: {[one.fact for one in found]}", flush=True)
dist.destroy_process_group()
