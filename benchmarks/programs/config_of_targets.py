"""A YAML configuration with _target_ entries and dotted overrides, as Hydra has it, read by a few lines of one's own.

truth: GO
why: every target is there and takes the arguments; the override's value is read as YAML is.
"""

import importlib
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
import yaml
from start import start
from torch.nn.parallel import DistributedDataParallel

CONFIG = """
model:
  _target_: torch.nn.Sequential
  _args_:
    - {_target_: torch.nn.Linear, in_features: 8, out_features: "${width}"}
    - {_target_: torch.nn.GELU, approximate: tanh}
    - {_target_: torch.nn.Linear, in_features: "${width}", out_features: 4}
optimizer:
  _target_: torch.optim.AdamW
  lr: 1.0e-3
  betas: [0.9, 0.95]
scheduler:
  _target_: torch.optim.lr_scheduler.OneCycleLR
  max_lr: 1.0e-2
  total_steps: "${steps}"
width: 16
steps: 6
"""
OVERRIDES = ["width=32", "optimizer.lr=5.0e-4", "steps=14"]


@dataclass
class Settings:
    width: int
    steps: int
    model: dict = field(default_factory=dict)
    optimizer: dict = field(default_factory=dict)
    scheduler: dict = field(default_factory=dict)


def composed():
    config = yaml.safe_load(CONFIG)
    for override in OVERRIDES:
        path, _, value = override.partition("=")
        *above, last = path.split(".")
        place = config
        for name in above:
            place = place[name]
        place[last] = yaml.safe_load(value)
    return resolved(config, config)


def resolved(node, root):
    if isinstance(node, dict):
        return {name: resolved(value, root) for name, value in node.items()}
    if isinstance(node, list):
        return [resolved(value, root) for value in node]
    if isinstance(node, str) and node.startswith("${"):
        return root[node[2:-1]]
    return node


def instantiate(node, *first, **more):
    if not isinstance(node, dict) or "_target_" not in node:
        return node
    module, _, name = node["_target_"].rpartition(".")
    arguments = [instantiate(one) for one in node.get("_args_", [])]
    named = {key: instantiate(value) for key, value in node.items() if not key.startswith("_")}
    return getattr(importlib.import_module(module), name)(*first, *arguments, **named, **more)


if __name__ == "__main__":
    settings = Settings(**composed())
    assert settings.width == 32
    device = start()
    model = DistributedDataParallel(instantiate(settings.model).to(device))
    optimizer = instantiate(settings.optimizer, model.parameters())
    scheduler = instantiate(settings.scheduler, optimizer)
    for _ in range(settings.steps):
        model(torch.randn(4, 8, device=device)).pow(2).mean().backward()
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
    dist.destroy_process_group()
