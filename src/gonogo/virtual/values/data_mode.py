"""The modes of data pipelines: tensors that are computed from known data on the CPU are real.

A loader, its workers and collators read data that the program created before, as virtual tensors with known values.
Functions of torch receive real tensors that share these values, so that all their results are real. If C++ receives a
virtual tensor nevertheless (one that requires a gradient, or whose shape is changed in place), each operator runs on
the values; what C++ creates on the device that it sees then belongs on the CPU. Unknown values and accelerator
tensors are left to the virtual mode.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from gonogo.virtual import private
from gonogo.virtual.tensor import CPU, VirtualTensor, resolve_device
from gonogo.virtual.values import contents

RealTensors = dict[int, tuple[torch.Tensor, VirtualTensor]]
"""By a virtual tensor's id: the real tensor that shares its values, and the virtual tensor itself."""


@contextmanager
def running_on_real_data() -> Iterator[None]:
    """Context in which known data is real; replaces the active dispatch modes."""
    with private.without_dispatch_modes(), _Operators(), _Functions():  # type: ignore[no-untyped-call]
        yield


class _Functions(TorchFunctionMode):
    """Replaces virtual tensors with known values by real ones in the arguments of torch's functions and methods."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run one function."""
        kwargs = kwargs or {}
        real: RealTensors = {}
        if (
            _mutates_tensor_object(func)
            or not _collect_real_tensors(args, real)
            or not _collect_real_tensors(kwargs.values(), real)
            or not real
        ):
            return func(*args, **kwargs)
        if torch.is_grad_enabled() and any(tensor.requires_grad for _, tensor in real.values()):
            return func(*args, **kwargs)
        return _call_with_real(func, args, kwargs, real)


@cache
def _mutates_tensor_object(func: Any) -> bool:
    """True if a function changes the tensor object itself (shape, storage, attributes), so that it can't be
    replaced."""
    name = getattr(func, "__name__", "")
    packet = getattr(torch.ops.aten, name, None) if name.endswith("_") and not name.startswith("__") else None
    if packet is not None:
        return any(torch.Tag.inplace_view in getattr(packet, overload).tags for overload in packet.overloads())
    return name in ("__set__", "requires_grad_")


class _Operators(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Runs operators on the real values of virtual tensors, if they are known."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run one operator."""
        kwargs = kwargs or {}
        if types and private.has_foreign_dispatch(tuple(types)):
            return NotImplemented
        wanted = kwargs.get("device")
        if wanted is not None:
            device = resolve_device(wanted)
            if device.type not in ("cpu", "meta"):
                return _call_in_virtual_mode(func, args, kwargs)
            kwargs = {**kwargs, "device": device}
        if not any(issubclass(kind, VirtualTensor) for kind in types):
            return func(*args, **kwargs)
        real: RealTensors = {}
        known = (
            torch.Tag.inplace_view not in func.tags
            and _collect_real_tensors(args, real)
            and _collect_real_tensors(kwargs.values(), real)
        )
        return _call_with_real(func, args, kwargs, real) if known else _call_in_virtual_mode(func, args, kwargs)


def _call_in_virtual_mode(func: Any, args: Any, kwargs: Any) -> Any:
    with VirtualTensor.virtual_mode:
        return func(*args, **kwargs)


def _call_with_real(func: Callable[..., Any], args: Any, kwargs: dict[str, Any], real: RealTensors) -> Any:
    """Call ``func`` with the real tensors; a result that is one of its arguments is mapped back to the virtual
    tensor."""
    out = func(*_swap_in_real(args, real), **{name: _swap_in_real((value,), real)[0] for name, value in kwargs.items()})
    given = {id(one): tensor for one, tensor in real.values()}
    if type(out) in (tuple, list):
        return type(out)(given.get(id(one), one) for one in out)
    return given.get(id(out), out)


def _collect_real_tensors(arguments: Any, real: RealTensors) -> bool:
    """Add the real tensor for each virtual one to ``real``; returns False if one has none."""
    for value in arguments:
        if isinstance(value, VirtualTensor):
            if id(value) not in real:
                with private.without_dispatch_modes():
                    if value._device != CPU or not contents.expand_uniform(value):
                        return False
                    known = contents.read_values(value)
                assert known is not None
                real[id(value)] = known, value
        elif isinstance(value, list | tuple) and not _collect_real_tensors(value, real):
            return False
    return True


def _swap_in_real(arguments: Any, real: RealTensors) -> Any:
    out = []
    for value in arguments:
        if isinstance(value, VirtualTensor):
            out.append(real[id(value)][0])
        elif type(value) in (list, tuple):
            out.append(_swap_in_real(value, real))
        else:
            out.append(value)
    return tuple(out) if isinstance(arguments, tuple) else out
