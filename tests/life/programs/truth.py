"""What a program's state really is, told by the program itself where it runs on the CPU; silent in a rehearsal."""

from __future__ import annotations

import json
import os
import re

import torch
import torch.distributed as dist

_WRAPPERS = re.compile(r"(?:^|(?<=\.))(?:module|_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module)\.")


def _sum(value: torch.Tensor) -> float:
    whole = value.full_tensor() if hasattr(value, "full_tensor") else value
    return round(float(whole.detach().double().abs().sum()), 6)


def _weight(parameter: torch.Tensor) -> torch.Tensor:
    """The whole parameter, of which ZeRO leaves each rank a part."""
    if hasattr(parameter, "ds_id") and not parameter.requires_grad:
        from deepspeed.runtime.zero import GatheredParameters

        with GatheredParameters([parameter]):
            return parameter.detach().clone()
    if hasattr(parameter, "ds_id") or hasattr(parameter, "_hp_mapping"):
        from deepspeed.utils import safe_get_full_fp32_param

        whole = safe_get_full_fp32_param(parameter)
        return parameter if whole is None else whole
    return parameter


def _moments(name: str, parameter: torch.Tensor, optimizer) -> dict[str, float]:
    if hasattr(parameter, "_hp_mapping"):
        return {}
    if hasattr(parameter, "ds_id"):
        from deepspeed.utils import safe_get_full_optimizer_state

        try:
            found = {slot: safe_get_full_optimizer_state(parameter, slot) for slot in ("exp_avg", "exp_avg_sq")}
        except KeyError:  # it has none yet
            found = {}
        return {f"{name}.{slot}": _sum(value) for slot, value in found.items() if value is not None}
    values = optimizer.state.get(parameter, {}) if hasattr(optimizer.state, "get") else {}
    return {
        f"{name}.{slot}": _sum(value)
        for slot, value in values.items()
        if isinstance(value, torch.Tensor) and value.numel() > 1
    }


def _shards(parameters, optimizer) -> dict[str, float]:
    """A rank's own parts of what DTensors shard: the whole's sum doesn't say which part is from which save."""
    found = {}
    for name, parameter in parameters.items():
        values = optimizer.state.get(parameter, {}) if hasattr(optimizer, "state") else {}
        for slot, value in (("", parameter), *values.items()):
            if hasattr(value, "to_local"):
                found[f"{name}.{slot}"] = round(float(value.detach().to_local().double().abs().sum()), 6)
    return found


def _flat_moments(optimizer) -> dict[str, float]:
    """Of ZeRO 1 and 2, whose ranks have a flat part of each group: summed over the ranks."""
    sums = {}
    for number, part in enumerate(getattr(optimizer, "single_partition_of_fp32_groups", ())):
        for slot, value in optimizer.optimizer.state.get(part, {}).items():
            if isinstance(value, torch.Tensor) and value.numel() > 1:
                total = value.detach().double().abs().sum()
                dist.all_reduce(total)
                sums[f"group {number}.{slot}"] = round(float(total), 6)
    return sums


def _steps(optimizer):
    inner = getattr(optimizer, "optimizer", optimizer)
    steps = [group["step"] for group in inner.param_groups if "step" in group]
    steps += [values["step"] for values in inner.state.values() if "step" in values]
    return max((float(step) for step in steps), default=None)


def tell(moment, model, optimizer=None, scheduler=None, batch=None):
    """Append the state's digests to the file that TRUTH names; ``moment`` is ``saved``, ``next`` or ``resumed``."""
    path = os.environ.get("TRUTH")
    if not path:
        return
    parameters = {_WRAPPERS.sub("", name): value for name, value in model.named_parameters()}
    optimizer = (
        getattr(optimizer, "optimizer", optimizer)
        if type(optimizer).__name__ == "AcceleratedOptimizer"
        else (optimizer)
    )
    trained = {name: value for name, value in parameters.items() if value.requires_grad}
    told = {
        "moment": moment,
        "parameters": {name: _sum(_weight(value)) for name, value in parameters.items()},
        "buffers": {_WRAPPERS.sub("", name): _sum(value) for name, value in model.named_buffers()},
        "moments": _flat_moments(optimizer),
        "steps": _steps(optimizer),
        "scheduler": getattr(scheduler, "last_epoch", getattr(scheduler, "last_batch_iteration", None)),
        "rng": int(torch.get_rng_state().long().sum()),
        "batch": None if batch is None else batch.flatten().tolist(),
    }
    for name, value in trained.items():
        told["moments"].update(_moments(name, value, optimizer))
    told["shards"] = _shards(parameters, optimizer)
    with open(f"{path}.{os.environ.get('RANK', '0')}", "a", encoding="utf-8") as file:
        file.write(json.dumps(told) + "\n")


def step_begins(model, optimizer, scheduler=None, batch=None, *, saved):
    """A step of training; the first after the save ends a real run's first life, the first at all its second.

    ``TRUTH_LIFE=again``: a resumed run, which ends after its own save.
    """
    life = os.environ.get("TRUTH_LIFE")
    if life and (saved or life == "second"):
        tell("resumed" if life == "second" else "next", model, optimizer, scheduler, batch)
        if dist.is_initialized():
            dist.barrier()
        os._exit(0)


_ADAPTERS = re.compile(
    r"^base_model\.(?:model\.)?|\.(?:base_layer|original_module)(?=\.)|\.modules_to_save\.default(?=\.)"
)


def tell_base(model, moment):
    """The weights under an adapter, as a program has them: ``before``, in training, and ``after``, where it is used."""
    path = os.environ.get("TRUTH")
    if not path:
        return
    told = {}
    for name, value in model.named_parameters():
        if not re.search(r"lora_|prompt_encoder", name) and (moment == "after" or not value.requires_grad):
            dtype = str(value.dtype).removeprefix("torch.")
            if ".original_module." not in name:
                told[_ADAPTERS.sub("", name)] = [dtype, [round(x, 6) for x in value.detach().flatten()[-64:].tolist()]]
    with open(f"{path}.{moment}", "w", encoding="utf-8") as file:
        json.dump(told, file)


def kill_after_save():
    """The first life of a real run ends here."""
    if os.environ.get("TRUTH_LIFE") == "first":
        os._exit(0)
