"""What a program's state really is, told by the program itself where it runs on the CPU; silent in a rehearsal."""

from __future__ import annotations

import json
import os

import torch


def _sum(value: torch.Tensor) -> float:
    local = value.to_local() if hasattr(value, "to_local") else value
    return round(float(local.detach().double().abs().sum()), 6)


def tell(moment, model, optimizer=None, scheduler=None, batch=None):
    """Append the state's digests to the file that TRUTH names; ``moment`` is ``saved`` or ``resumed``."""
    path = os.environ.get("TRUTH")
    if not path:
        return
    told = {
        "moment": moment,
        "parameters": {name: _sum(value) for name, value in model.named_parameters()},
        "moments": {},
        "steps": None,
        "scheduler": getattr(scheduler, "last_epoch", None),
        "rng": int(torch.get_rng_state().long().sum()),
        "batch": None if batch is None else batch.flatten().tolist(),
    }
    for number, state in enumerate(optimizer.state.values() if optimizer is not None else ()):
        for name, value in state.items():
            if isinstance(value, torch.Tensor) and value.numel() > 1:
                told["moments"][f"{number}.{name}"] = _sum(value)
            elif name == "step":
                told["steps"] = float(value)
    with open(f"{path}.{os.environ.get('RANK', '0')}", "a", encoding="utf-8") as file:
        file.write(json.dumps(told) + "\n")


def kill_after_save():
    """The first life of a real run ends here."""
    if os.environ.get("TRUTH_LIFE") == "first":
        os._exit(0)
