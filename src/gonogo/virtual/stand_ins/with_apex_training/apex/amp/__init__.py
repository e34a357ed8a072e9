"""Apex's mixed precision: O1 with PyTorch's autocast, which casts by lists of operators too; O2 and O3 with weights in
half precision, O2 with master weights in the optimizer. No gradient overflows here, so that no step is skipped."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from apex import _rest

__all__ = ["disable_casts", "initialize", "load_state_dict", "master_params", "scale_loss", "state_dict"]
__getattr__ = _rest.module_getattr(__name__)
_LEVELS: dict[str, dict[str, Any]] = {
    "O0": {"cast": torch.float32, "autocast": False, "masters": False, "scale": 1.0},
    "O1": {"cast": None, "autocast": True, "masters": False, "scale": "dynamic"},
    "O2": {"cast": torch.float16, "autocast": False, "masters": True, "scale": "dynamic"},
    "O3": {"cast": torch.float16, "autocast": False, "masters": False, "scale": 1.0},
}
_FIRST_SCALE = 2.0**16


class _State:
    """What :func:`initialize` has set up."""

    enabled = True
    initialized = False
    autocast: Any = None
    scales: tuple[float, ...] = ()


def initialize(
    models: Any, optimizers: Any = None, enabled: bool = True, opt_level: str = "O1", cast_model_type: Any = None,
    patch_torch_functions: bool | None = None, keep_batchnorm_fp32: Any = None, master_weights: bool | None = None,
    loss_scale: Any = None, cast_model_outputs: Any = None, num_losses: int = 1, verbosity: int = 1, **others: Any,
) -> Any:  # fmt: skip
    """The models and optimizers, changed as the level says."""
    _State.initialized, _State.enabled = True, enabled
    if not enabled:
        return models if optimizers is None else (models, optimizers)
    if opt_level not in _LEVELS:
        raise RuntimeError(f"Unexpected optimization level {opt_level}. Options are 'O0', 'O1', 'O2', 'O3'.")
    level = _LEVELS[opt_level]
    cast = cast_model_type if cast_model_type is not None else level["cast"]
    scale = loss_scale if loss_scale is not None else level["scale"]
    _State.scales = (_FIRST_SCALE if scale == "dynamic" else float(scale),) * num_losses
    keep = opt_level == "O2" if keep_batchnorm_fp32 is None else keep_batchnorm_fp32 in (True, "True")
    for model in models if isinstance(models, list | tuple) else [models]:
        if cast is not None:
            _cast_model(model, cast, keep_norms=keep)
    if level["autocast"] if patch_torch_functions is None else patch_torch_functions:
        _State.autocast = torch.autocast("cuda", torch.float16)
        _State.autocast.__enter__()
    if level["masters"] if master_weights is None else master_weights:
        for optimizer in _listed(optimizers):
            _use_masters(optimizer)
    return models if optimizers is None else (models, optimizers)


def _listed(optimizers: Any) -> list[Any]:
    """The optimizers, those within a wrapper such as LARC themselves."""
    if optimizers is None:
        return []
    found = optimizers if isinstance(optimizers, list | tuple) else [optimizers]
    return [one.__dict__.get("optim", one) for one in found]


def _cast_model(model: torch.nn.Module, dtype: torch.dtype, *, keep_norms: bool) -> None:
    """Cast its parameters and buffers, what it is given, and what it returns."""
    for module in model.modules():
        if keep_norms and isinstance(module, torch.nn.modules.batchnorm._BatchNorm) and module.affine:
            continue
        for one in [*module.parameters(recurse=False), *module.buffers(recurse=False)]:
            if one.is_floating_point():
                one.data = one.data.to(dtype)
    forward = model.forward

    def cast_forward(*inputs: Any, **kwargs: Any) -> Any:
        return _cast(forward(*_cast(inputs, dtype), **_cast(kwargs, dtype)), torch.float32)

    model.forward = cast_forward


def _cast(value: Any, dtype: torch.dtype) -> Any:
    if isinstance(value, torch.Tensor):
        return value.to(dtype) if value.is_floating_point() else value
    if isinstance(value, dict):
        return type(value)({key: _cast(one, dtype) for key, one in value.items()})
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        return type(value)(_cast(one, dtype) for one in value)
    return value


def _use_masters(optimizer: Any) -> None:
    """Let the optimizer update weights in single precision, from which those of the model are copied."""
    pairs: list[tuple[torch.Tensor, torch.Tensor]] = []
    for group in optimizer.param_groups:
        for number, one in enumerate(group["params"]):
            if one.requires_grad and one.dtype is torch.float16:
                master = one.detach().clone().float().requires_grad_()
                group["params"][number] = master
                pairs.append((one, master))
                if one in optimizer.state:
                    optimizer.state[master] = optimizer.state.pop(one)
    step, zero = optimizer.step, optimizer.zero_grad

    def step_and_copy(closure: Any = None) -> Any:
        if closure is not None:
            raise RuntimeError("Currently, Amp does not support closure use with optimizers.")
        done = step()
        with torch.no_grad():
            for half, master in pairs:
                half.copy_(master)
        return done

    def zero_both(set_to_none: bool = True) -> None:
        zero(set_to_none=set_to_none)
        for half, _ in pairs:
            half.grad = None

    optimizer.step, optimizer.zero_grad = step_and_copy, zero_both
    optimizer.__dict__["_apex_pairs"] = pairs


@contextlib.contextmanager
def scale_loss(
    loss: Any, optimizers: Any, loss_id: int = 0, model: Any = None, delay_unscale: bool = False,
    delay_overflow_check: bool = False,
) -> Iterator[Any]:  # fmt: skip
    """The scaled loss; behind the block the gradients are those of the loss."""
    if not _State.initialized:
        raise RuntimeError("Invoked 'with amp.scale_loss`, but internal Amp state has not been initialized.")
    if not _State.enabled:
        yield loss
        return
    scale = _State.scales[loss_id]
    yield loss.float() * scale
    if delay_unscale:
        return
    with torch.no_grad():
        for optimizer in _listed(optimizers):
            pairs = optimizer.__dict__.get("_apex_pairs", ())
            masters = {id(master) for _, master in pairs}
            for half, master in pairs:
                if half.grad is not None:
                    master.grad = half.grad.float().mul_(1 / scale)
            for group in optimizer.param_groups:
                for one in group["params"]:
                    if one.grad is not None and id(one) not in masters:
                        one.grad.mul_(1 / scale)
    torch.clear_autocast_cache()


def master_params(optimizer: Any) -> Iterator[Any]:
    """What the optimizer updates."""
    for group in optimizer.param_groups:
        yield from group["params"]


@contextlib.contextmanager
def disable_casts() -> Iterator[None]:
    """Without the casts of O1."""
    with torch.autocast("cuda", enabled=False):
        yield


def state_dict(destination: Any = None) -> Any:
    """The loss scales."""
    found = {} if destination is None else destination
    for number, scale in enumerate(_State.scales):
        found[f"loss_scaler{number}"] = {"loss_scale": scale, "unskipped": 0}
    return found


def load_state_dict(state_dict: Any) -> None:
    """Take over the loss scales."""
    _State.scales = tuple(one["loss_scale"] for key, one in state_dict.items() if "loss_scaler" in key) or _State.scales


def half_function(function: Any) -> Any:
    """The function, whose operators autocast casts."""
    return function


float_function = promote_function = half_function


def register_half_function(module: Any, name: str) -> None:
    """Accept the function's name."""


register_float_function = register_promote_function = register_half_function
