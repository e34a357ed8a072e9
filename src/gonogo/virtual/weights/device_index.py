"""``torch.device(0)`` and ``device=0``: an accelerator's index, which a torch without accelerators rejects.

Device maps (``{"": 0}``, or the result of ``device_map="auto"``) contain such indices.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from gonogo.virtual.patching.patches import Patches
from gonogo.virtual.tensor import VirtualTensor

_original_device = torch.device
_FACTORIES = (
    "empty", "zeros", "ones", "full", "rand", "randn", "randint", "randperm", "arange", "linspace", "logspace", "eye",
    "empty_strided", "empty_like", "zeros_like", "ones_like", "full_like", "rand_like", "randn_like", "randint_like",
)  # fmt: skip
_FACTORY_METHODS = ("new_empty", "new_zeros", "new_ones", "new_full", "new_empty_strided")


class _DeviceType(type):
    """Metaclass that creates real devices, and recognizes them as instances."""

    def __call__(cls, *args: Any, **kwargs: Any) -> torch.device:
        if len(args) == 1 and not kwargs and isinstance(args[0], int) and not isinstance(args[0], bool):
            return _original_device(VirtualTensor.accelerator_type, args[0])
        return _original_device(*args, **kwargs)

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _original_device)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, _original_device)

    def __eq__(cls, other: object) -> bool:
        return other is cls or other is _original_device

    def __hash__(cls) -> int:
        return hash(_original_device)


def install(patches: Patches) -> None:
    """Make ``torch.device`` and torch's factories accept the index of a virtual accelerator."""
    device = _DeviceType("device", (), {"__module__": "torch", "__doc__": _original_device.__doc__})
    patches.set(torch, "device", device)
    replaced = []
    for name in _FACTORIES:
        original = getattr(torch, name)
        replaced.append((original, _accept_device_index(original)))
        patches.set(torch, name, replaced[-1][1])
    for name in _FACTORY_METHODS:
        patches.set(torch.Tensor, name, _accept_device_index(getattr(torch.Tensor, name)))
    patches.replace_everywhere(replaced, excluded_modules=[torch])
    # Called by Module.to, and by libraries whose tensor containers have their own ``to`` (tensordict).
    patches.set(torch._C._nn, "_parse_to", _accept_device_index(torch._C._nn._parse_to, first_positional=True))


def _accept_device_index(original: Any, *, first_positional: bool = False) -> Any:
    """Wrap the function to accept an index for ``device=``; with ``first_positional``, also as first argument."""

    @functools.wraps(original)
    def call_with_device(*args: Any, **kwargs: Any) -> Any:
        if type(kwargs.get("device")) is int:
            kwargs["device"] = _original_device(VirtualTensor.accelerator_type, kwargs["device"])
        if first_positional and args and type(args[0]) is int:
            args = (_original_device(VirtualTensor.accelerator_type, args[0]), *args[1:])
        return original(*args, **kwargs)

    return call_with_device
