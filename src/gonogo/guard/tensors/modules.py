"""Finds the names of modules and tensors in the model: on demand only, so training pays nothing."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any, Literal

from gonogo.guard.common.frames import iter_callers
from gonogo.virtual.frame_variables import local_variable

Kind = Literal["parameter", "buffer", "gradient", "unknown"]
_FORWARD_FRAME_NAMES = ("_call_impl", "_wrapped_call_impl", "forward", "__call__")


class Names:
    """The names of a model's modules, parameters and buffers."""

    def __init__(self, model: Any) -> None:
        self._modules: dict[int, str] = {}
        self._tensors: dict[int, tuple[str, Kind]] = {}
        self._storages: dict[int, tuple[str, Kind]] = {}
        self.by_zero_number: dict[int, tuple[str, Any]] = {}
        """Parameters by DeepSpeed's ``ds_id``: (name, parameter)."""
        if model is None:
            return
        for name, module in model.named_modules():
            self._modules[id(module)] = name
        for name, parameter in model.named_parameters():
            self._add_tensor_name(name, parameter, "parameter")
            if hasattr(parameter, "ds_id"):
                self.by_zero_number[parameter.ds_id] = (name, parameter)
        for name, buffer in model.named_buffers():
            self._add_tensor_name(name, buffer, "buffer")

    def _add_tensor_name(self, name: str, tensor: Any, kind: Kind) -> None:
        self._tensors[id(tensor)] = (name, kind)
        if pointer := _storage_pointer(tensor):
            self._storages.setdefault(pointer, (name, kind))

    def module_path(self, module: Any) -> str | None:
        """A module's path; for the root module, the name of its class."""
        path = self._modules.get(id(module))
        return type(module).__name__ if path == "" else path

    def tensor_name_and_kind(self, tensor: Any) -> tuple[str | None, Kind]:
        """(name, kind) of a parameter or buffer, of a view of one, or of the parameter that it is the gradient of."""
        if found := self._tensors.get(id(tensor)):
            return found
        pointer = _storage_pointer(tensor)
        if pointer and (found := self._storages.get(pointer)):
            return found
        return None, "unknown"


def _storage_pointer(tensor: Any) -> int:
    if type(tensor).__name__ not in ("Tensor", "Parameter", "Buffer"):  # a subclass may have no storage of its own
        return 0
    try:
        return int(tensor.untyped_storage().data_ptr()) if tensor.numel() else 0
    except Exception:  # a sparse tensor has no storage either
        return 0


def names_of(model: Any, frames: list[FrameType]) -> Names:
    """The names in the trained model, or in the outermost running module if that is not part of the model."""
    running = [module for module, _ in modules_running(frames)]
    if model is not None and (not running or any(module in running for module in model.modules())):
        return Names(model)
    return Names(_unwrap_model(running[0]) if running else model)


def _unwrap_model(module: Any) -> Any:
    """The module inside a DeepSpeed engine or a DDP wrapper."""
    inner = getattr(module, "module", None)
    wrapper = type(module).__name__ in ("DeepSpeedEngine", "DistributedDataParallel", "FullyShardedDataParallel")
    return inner if wrapper and inner is not None else module


def modules_running(frames: list[FrameType]) -> Iterator[tuple[Any, FrameType]]:
    """The modules whose forward is among these frames, outermost first, each once."""
    torch: Any = sys.modules.get("torch")
    if torch is None:
        return
    last = None
    for frame in frames:
        if frame.f_code.co_name not in _FORWARD_FRAME_NAMES:
            continue
        module = local_variable(frame, "self")
        if isinstance(module, torch.nn.Module) and module is not last:
            last = module
            yield module, frame


def module_of_stack(model: Any, innermost_frame: FrameType | None) -> str | None:
    """The path of the innermost module whose forward is running in a thread."""
    frames = list(reversed(list(iter_callers(innermost_frame))))
    running = [module for module, _ in modules_running(frames)]
    return names_of(model, frames).module_path(running[-1]) if running else None
