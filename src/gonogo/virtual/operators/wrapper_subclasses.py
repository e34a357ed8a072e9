"""Libraries' wrapper subclasses of virtual tensors, such as torchao's quantized ones and jagged nested tensors.

They pass the device of the tensors that they hold to C++. For virtual tensors that would be an accelerator that this
build of torch may not know, upon which an in-place operator raises and autograd aborts the process. So C++ is given
the same ``meta`` device as for the tensors that they hold, and the class reports the virtual one. DTensor has
``collectives/sharded_tensors.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from gonogo.virtual.patching.patches import Patches
from gonogo.virtual.tensor import MetaKernelState, VirtualTensor, meta_device, resolve_device

_DEVICE_ARGUMENT_INDEX = 6
"""Position of the device in a call of ``_make_wrapper_subclass``, after the class."""


def install() -> Callable[[], None]:
    """Patch ``Tensor._make_wrapper_subclass``; returns the undo."""
    patches = Patches()
    make = torch.Tensor._make_wrapper_subclass

    @cache
    def reports_virtual_device(cls: type) -> bool:
        if cls.__name__ == "DTensor" or issubclass(cls, VirtualTensor):
            return False
        for name, attribute in DEVICE_ATTRIBUTES.items():
            if getattr(cls, name) is getattr(torch.Tensor, name):  # the library has none of its own
                patches.set(cls, name, attribute)
        return True

    def make_wrapper(cls: Any, *args: Any, **kwargs: Any) -> Any:
        by_position = len(args) > _DEVICE_ARGUMENT_INDEX
        device = args[_DEVICE_ARGUMENT_INDEX] if by_position else kwargs.get("device")
        if device is not None:
            virtual = resolve_device(device)
            if virtual.type == VirtualTensor.accelerator_type and reports_virtual_device(cls):
                if by_position:
                    args = (*args[:_DEVICE_ARGUMENT_INDEX], meta_device(virtual), *args[_DEVICE_ARGUMENT_INDEX + 1 :])
                else:
                    kwargs["device"] = meta_device(virtual)
        return make(cls, *args, **kwargs)

    patches.set(torch.Tensor, "_make_wrapper_subclass", staticmethod(make_wrapper))
    return patches.undo


_device_in_cpp: Any = torch.Tensor.device


def _device_of(tensor: Any) -> torch.device:
    device: torch.device = _device_in_cpp.__get__(tensor)
    return device if MetaKernelState.running else resolve_device(device)


def _get_device(tensor: Any) -> int:
    device = _device_of(tensor)
    return -1 if device.index is None else device.index


DEVICE_ATTRIBUTES: dict[str, Any] = {
    "device": property(_device_of),
    "is_cuda": property(lambda tensor: _device_of(tensor).type == "cuda"),
    "is_cpu": property(lambda tensor: _device_of(tensor).type == "cpu"),
    "is_meta": property(lambda tensor: _device_of(tensor).type == "meta"),
    "get_device": _get_device,
}
"""What a wrapper subclass reports of its device: the virtual one behind the ``meta`` device that C++ has."""
