"""The optimizers and learning-rate schedulers that a release makes itself, and the parameters that they take."""

from __future__ import annotations

import ast

from scripts.deepspeed_keys.keys import Key
from scripts.deepspeed_keys.release import Class, Constant, Release, constant

# Which classes an optimizer's name may mean: it depends on offloading and on torch_adam.
_CLASSES = {
    "adam": ("FusedAdam", "DeepSpeedCPUAdam"),
    "adamw": ("FusedAdam", "DeepSpeedCPUAdam"),
    "adagrad": ("DeepSpeedCPUAdagrad",),
    "lamb": ("FusedLamb",),
    "lion": ("FusedLion", "DeepSpeedCPULion"),
    "onebitadam": ("OnebitAdam",),
    "zerooneadam": ("ZeroOneAdam",),
    "onebitlamb": ("OnebitLamb",),
}
_TORCH = {
    "adam": ("amsgrad", "foreach", "maximize", "capturable", "differentiable", "fused"),
    "adamw": ("amsgrad", "foreach", "maximize", "capturable", "differentiable", "fused"),
    "adagrad": ("lr_decay", "initial_accumulator_value", "foreach", "maximize", "differentiable"),
}
# Given by DeepSpeed itself, or read by its engine before the optimizer is made.
_NOT_TAKEN = frozenset({"self", "model_params", "params", "param_groups", "deepspeed", "optimizer"})
_READ_BY_ENGINE = {
    "adam": {"torch_adam": False, "adam_w_mode": True},
    "adamw": {"torch_adam": False, "adam_w_mode": True},
    "muon": {"muon_lr": None, "adam_lr": None, "lr": None, "momentum": None, "weight_decay": None, "ns_method": None},
}


def optimizers_of(release: Release) -> dict[str, Key]:
    """Each optimizer that the release makes by name, with its parameters."""
    module = release.module("deepspeed.runtime.config")
    named = module.look_up("DEEPSPEED_OPTIMIZERS") if module is not None else None
    found: dict[str, Key] = {}
    for name in named.value if isinstance(named, Constant) else ():
        made = found.setdefault(str(name).lower(), Key())
        made.free = str(name).lower() not in _CLASSES
        for class_name in _CLASSES.get(str(name).lower(), ()):
            for one in release.classes(class_name):
                _take_parameters(made, one)
        for parameter in _TORCH.get(str(name).lower(), ()):
            made.at((parameter,))
        for parameter, default in _READ_BY_ENGINE.get(str(name).lower(), {}).items():
            made.at((parameter,)).defaults_to(default)
        made.at(("max_grad_norm",))
        made.at(("freeze_step",)) if name in ("onebitadam", "onebitlamb") else None
    return found


def schedulers_of(release: Release) -> dict[str, Key]:
    """Each learning-rate scheduler that the release knows by name, with its parameters."""
    module = release.module("deepspeed.runtime.lr_schedules")
    named = module.look_up("VALID_LR_SCHEDULES") if module is not None else None
    found: dict[str, Key] = {}
    for name in named.value if isinstance(named, Constant) else ():
        made = module.look_up(str(name)) if module is not None else None
        if isinstance(made, Class):
            _take_parameters(found.setdefault(str(name), Key()), made)
    return found


def _take_parameters(key: Key, of: Class) -> None:
    for statement in of.node.body:
        if isinstance(statement, ast.FunctionDef) and statement.name == "__init__":
            taken = statement.args
            names = [one.arg for one in taken.args + taken.kwonlyargs]
            defaults = [*[None] * (len(taken.args) - len(taken.defaults)), *taken.defaults, *taken.kw_defaults]
            for name, default in zip(names, defaults, strict=True):
                if name not in _NOT_TAKEN:
                    value = constant(default, of.module) if default is not None else None
                    key.at((name,)).defaults_to(value.value if value is not None else None)
