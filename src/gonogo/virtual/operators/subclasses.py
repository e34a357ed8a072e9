"""Library tensor subclasses with virtual data, such as bitsandbytes' ``Params4bit``, which keep their methods.

For virtual data, ``Tensor._make_subclass(cls, data)`` returns a tensor whose class derives from both ``cls`` and
``VirtualTensor``: it has the library's attributes and methods, and a virtual tensor's device, storage and dispatch.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import nn

from gonogo.virtual import private
from gonogo.virtual.memory.tracking import MemoryRecord
from gonogo.virtual.operators import jagged, wrapper_subclasses
from gonogo.virtual.patching.patches import Patches
from gonogo.virtual.reentrancy import InternalWork
from gonogo.virtual.tensor import VirtualTensor

_make: Any = private.make_alias
_PLAIN_TENSOR_CLASSES = (
    torch.Tensor,
    nn.Parameter,
    getattr(nn, "Buffer", torch.Tensor),
)  # there is no Buffer before torch 2.5


def install(memory: MemoryRecord) -> Callable[[], None]:
    """Make ``Tensor._make_subclass`` and ``Tensor.as_subclass`` keep virtual tensors virtual; returns the undo."""
    patches = Patches()
    as_subclass = torch.Tensor.as_subclass

    def make_subclass(cls: Any, data: Any, requires_grad: bool = False, **options: Any) -> Any:
        if (
            type(data) is torch.Tensor
            and data.device.type == "cpu"
            and issubclass(cls, nn.Parameter)
            and not InternalWork.now
        ):
            data = VirtualTensor.virtual_mode.virtualise(data)
        if not isinstance(data, VirtualTensor):
            return _make(cls, data, requires_grad, **options)
        made = make_virtual_subclass(cls, data, requires_grad)
        if issubclass(cls, nn.Parameter):
            made.cell.values = None
            memory.recategorise(made.cell, "parameters")
        return made

    def as_subclass_of(tensor: Any, cls: Any) -> Any:
        if not isinstance(tensor, VirtualTensor):
            return as_subclass(tensor, cls)
        return tensor if issubclass(VirtualTensor, cls) else make_virtual_subclass(cls, tensor, tensor.requires_grad)

    patches.set(torch.Tensor, "_make_subclass", staticmethod(make_subclass))
    patches.set(torch.Tensor, "as_subclass", as_subclass_of)
    patches.on_undo(jagged.install())
    patches.on_undo(wrapper_subclasses.install())
    return patches.undo


def make_virtual_subclass(cls: type, data: VirtualTensor, requires_grad: bool = False) -> Any:
    """A tensor that shares ``data``'s storage, of a virtual class derived from ``cls``."""
    with private.DisableTorchDispatch():
        made = _make(virtual_class(cls), data, requires_grad)
    made._device, made._spec, made.cell = data._device, None, data.cell
    return made


@cache
def virtual_class(cls: type) -> type:
    """The class that derives from both ``cls`` and ``VirtualTensor``, with ``cls``'s name, which libraries check."""
    if issubclass(cls, VirtualTensor):
        return cls
    if cls in _PLAIN_TENSOR_CLASSES:
        return VirtualTensor
    made = types.new_class(cls.__name__, (cls, VirtualTensor), {"metaclass": type(cls)})
    made.__module__, made.__qualname__ = cls.__module__, cls.__qualname__
    return made
