"""Jagged nested tensors with virtual values: the device that they report, and how they are pinned."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch

from gonogo.virtual.patching.after_import import after_import
from gonogo.virtual.patching.patches import Patches


def install() -> Callable[[], None]:
    """Patch ``NestedTensor`` once it is imported; returns the undo."""
    patches = Patches()
    patches.on_undo(
        after_import("torch.nested._internal.nested_tensor", lambda module: _patch_nested_tensor(patches, module))
    )
    return patches.undo


def _patch_nested_tensor(patches: Patches, module: Any) -> None:
    nested = module.NestedTensor
    for name in ("device", "is_cuda", "is_cpu", "is_meta"):
        patches.set(nested, name, _values_property(name, getattr(torch.Tensor, name)))
    patches.set(nested, "get_device", lambda tensor: tensor._values.get_device())
    patches.set(nested, "is_pinned", lambda tensor, device=None: tensor._values.is_pinned())
    patches.set(nested, "pin_memory", _pin_memory)


def _values_property(name: str, original: Any) -> property:
    """Read the attribute from the values, or from C++ before they are set."""

    def get_from_values(tensor: Any) -> Any:
        values = tensor.__dict__.get("_values")
        return original.__get__(tensor) if values is None else getattr(values, name)

    return property(get_from_values)


def _pin_memory(tensor: Any, device: Any = None) -> Any:
    """Pin the values and offsets: C++ would refuse to pin a tensor that seems to have no data."""
    operators: Any = importlib.import_module("torch.nested._internal.ops")
    return type(tensor)(tensor._values.pin_memory(), **operators.extract_kwargs(tensor))
