"""Operators that overwrite, resize, replace or pin a storage."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch

from gonogo.virtual import private
from gonogo.virtual.dispatch.schema import KNOWN_FACTORIES
from gonogo.virtual.mode import HANDLERS, VirtualMode
from gonogo.virtual.tensor import CPU, VirtualTensor
from gonogo.virtual.values import contents, real

aten = torch.ops.aten


def _copy(mode: VirtualMode, func: Any, args: Any, kwargs: Any) -> Any:
    """``copy_``: overwriting a whole storage with known values makes it known again."""
    target, source = args[0], args[1]
    if type(target) is not VirtualTensor:
        return mode.run(mode.operator(func), args, kwargs)
    # The result of a collective is copied from real tensors.
    has_values = contents.is_known(source) if isinstance(source, VirtualTensor) else source.device.type == "cpu"
    becomes_known = has_values and not contents.is_known(target) and contents.spans_whole_storage(target)
    if becomes_known and target.cell.nbytes <= contents.max_known_bytes(target._device):
        contents.set_uniform(target, 0)
    return mode.run(mode.operator(func), args, kwargs)


def _fill(mode: VirtualMode, func: Any, args: Any, kwargs: Any) -> Any:
    """``zero_`` and ``fill_``: set a whole storage to one number."""
    target = args[0]
    number = 0 if func is aten.zero_.default else args[1]
    if type(target) is VirtualTensor and not isinstance(number, torch.Tensor):
        if contents.spans_whole_storage(target):
            contents.set_uniform(target, number)
            return target
        if target.cell.values is None:
            return target
    return mode.run(mode.operator(func), args, kwargs)


def _resize(mode: VirtualMode, func: Any, args: Any, kwargs: Any) -> Any:
    """``resize_``: if the storage grows, it is reallocated."""
    target = args[0]
    if not isinstance(target, VirtualTensor):
        return func(*args, **kwargs)
    shape = args[1] if not isinstance(args[1], torch.Tensor) else args[1].shape
    with private.DisableTorchDispatch():
        aten.resize_.default(target, list(shape))
    return _recount_storage(mode, target)


def _recount_storage(mode: VirtualMode, target: VirtualTensor) -> VirtualTensor:
    """Reallocate the storage of ``target`` if its size has changed; returns ``target``."""
    target._spec = None
    nbytes = contents.storage_bytes(target)
    if nbytes != target.cell.nbytes:
        target.cell = mode.memory.new_cell(target._device, nbytes)
    return target


def _set(mode: VirtualMode, func: Any, args: Any, kwargs: Any) -> Any:
    """``set_``: make the tensor use another storage."""
    target = args[0]
    if type(target) is not VirtualTensor:
        return func(*args, **kwargs)
    source = args[1] if len(args) > 1 else None
    if isinstance(source, torch.Tensor) and not isinstance(source, VirtualTensor):
        source = mode.virtualise(source)
        args = (target, source, *args[2:])
    storage = source._untyped_storage if isinstance(source, torch.TypedStorage) else source
    of_virtual = storage.__dict__.get("virtual") if isinstance(storage, torch.UntypedStorage) else None
    if isinstance(storage, torch.UntypedStorage) and of_virtual is None and storage.device.type == "cpu":
        target.data = mode.virtualise(func(real.empty(0, dtype=target.dtype), *args[1:], **kwargs))
        return target
    with private.DisableTorchDispatch():
        func(*args, **kwargs)
    target._spec = None
    if of_virtual is not None:
        target.cell, target._device = of_virtual
        return target
    if isinstance(source, VirtualTensor):
        target.cell, target._device = source.cell, source._device
        return target
    return _recount_storage(mode, target)


def _pin_memory(mode: VirtualMode, func: Any, args: Any, kwargs: Any) -> Any:
    return mode.pinned_copy(args[0])


def _is_pinned(mode: VirtualMode, func: Any, args: Any, kwargs: Any) -> Any:
    return args[0].cell.pinned if isinstance(args[0], VirtualTensor) else False


def _create_tensor(mode: VirtualMode, func: Any, args: Any, kwargs: Any) -> Any:
    """Factory functions: handle ``pin_memory=True``, which meta kernels ignore, and an optimizer's states in its
    step."""
    pinned = kwargs.pop("pin_memory", False)
    with mode.memory.with_category("optimizer") if mode.memory.makes_states else nullcontext():
        out = mode.run(mode.operator(func), args, kwargs)
    if pinned and isinstance(out, VirtualTensor) and out._device == CPU:
        mode.memory.device(CPU).pin(out.cell)
    return out


HANDLERS[aten.copy_.default] = _copy
HANDLERS[aten.zero_.default] = HANDLERS[aten.fill_.Scalar] = _fill
HANDLERS[aten.resize_.default] = HANDLERS[aten.resize_as_.default] = _resize
for _overload in (
    "source_Tensor",
    "source_Storage",
    "source_Storage_storage_offset",
    "default",
    "source_Tensor_storage_offset",
):
    HANDLERS[getattr(aten.set_, _overload)] = _set
HANDLERS[aten._pin_memory.default] = _pin_memory
HANDLERS[aten.is_pinned.default] = _is_pinned
for _name in KNOWN_FACTORIES:
    _packet: Any = getattr(aten, _name, None)
    for _overload in _packet.overloads() if _packet is not None else ():
        _func = getattr(_packet, _overload)
        if any(a.name == "pin_memory" for a in _func._schema.arguments):
            HANDLERS[_func] = _create_tensor
