"""Values without memory: small tensors carry their real values, so that the program's conditions are exact.

Values belong to the storage (:attr:`Cell.values`), so that views and in-place writes stay consistent: they are either
real bytes or :class:`UniformValues`, one number for a storage of any size. Writing something unknown discards the
storage's values.
"""

from __future__ import annotations

import math
import re
from typing import Any

import torch

from gonogo.finding import translated
from gonogo.virtual import private
from gonogo.virtual.tensor import VirtualTensor
from gonogo.virtual.values import real
from gonogo.virtual.values.value_trace import ValueTrace

KNOWN_VALUES_LIMIT_BYTES = {"cpu": 64 << 20, "accelerator": 8 << 20}
"""Size limit of storages that keep their values: the data pipeline's, and masks and positions on a device."""
EMPTY_LIMIT_BYTES = 64 << 10
"""``torch.empty`` is assumed to be zero up to this size; larger buffers are unknown until they are written."""

aten = torch.ops.aten
_UNIFORM_REDUCTIONS = {
    aten.any.default, aten.all.default, aten.amax.default, aten.amin.default, aten.max.default, aten.min.default,
    aten.mean.default,
}  # fmt: skip


class UniformValues:
    """A storage whose elements all have the same known value."""

    __slots__ = ("scalar",)

    def __init__(self, scalar: torch.Tensor) -> None:
        self.scalar = scalar


CHOSEN_NUMBER = translated("the program reads a number that was selected by unknown scores (argmax, topk)")


def max_known_bytes(device: torch.device) -> int:
    """The maximum size in bytes of a storage on ``device`` that keeps its values."""
    return KNOWN_VALUES_LIMIT_BYTES["cpu" if device.type == "cpu" else "accelerator"]


def is_known(tensor: VirtualTensor) -> bool:
    """True if the tensor's values are known."""
    return tensor.cell.values is not None


def read_values(tensor: VirtualTensor) -> torch.Tensor | None:
    """The values as a real CPU tensor that shares them, or None. Call with the mode off."""
    known = peek_values(tensor)
    if known is not None and ValueTrace.now is not None:
        ValueTrace.now.record_read(known)
    return known


def peek_values(tensor: VirtualTensor) -> torch.Tensor | None:
    """Like :func:`read_values`, without recording a read in the value trace."""
    values = tensor.cell.values
    if values is None:
        return None
    if type(values) is UniformValues:
        number = values.scalar.to(tensor.dtype)
        if number is not values.scalar:
            _trace_copy(number, values.scalar)
        return number.expand(tensor.shape)
    return real.empty(0, dtype=tensor.dtype).set_(values, tensor.storage_offset(), tensor.shape, tensor.stride())


def _trace_copy(copy: torch.Tensor, source: torch.Tensor) -> None:
    if ValueTrace.now is not None:
        ValueTrace.now.record_copy(copy, source)


def forget_values(tensor: VirtualTensor) -> None:
    """Discard the storage's values after an unknown write."""
    tensor.cell.values = None


def spans_whole_storage(tensor: VirtualTensor) -> bool:
    """True if the tensor covers its whole storage."""
    return tensor.numel() * tensor.element_size() == tensor.cell.nbytes and tensor.is_contiguous()


def set_uniform(tensor: VirtualTensor, number: Any) -> None:
    """Set every element of the tensor's whole storage to ``number``."""
    tensor.cell.values = UniformValues(real.full((), number, dtype=tensor.dtype))


def set_values(tensor: VirtualTensor, known: torch.Tensor) -> None:
    """Set the values of the tensor's whole storage to ``known``; they are discarded if they exceed the limit."""
    if type(known) is not torch.Tensor:
        known = known.as_subclass(torch.Tensor)
    uniform = known.numel() > 1 and not any(known.stride())
    if uniform:
        tensor.cell.values = UniformValues(scalar := known[(0,) * known.dim()].clone())
        _trace_copy(scalar, known[(0,) * known.dim()])
    elif tensor.cell.nbytes > max_known_bytes(tensor._device):
        tensor.cell.values = None
    elif known.stride() == tensor.stride() and known.untyped_storage().nbytes() == tensor.cell.nbytes:
        tensor.cell.values = known.untyped_storage()
    else:
        laid = real.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)
        laid.copy_(known)
        _trace_copy(laid, known)
        tensor.cell.values = laid.untyped_storage()


def expand_for_write(tensor: VirtualTensor) -> bool:
    """Expand a uniform storage to real bytes before a partial write; returns False, with values discarded, if too
    large."""
    if expand_uniform(tensor):
        return True
    forget_values(tensor)
    return False


def expand_uniform(tensor: VirtualTensor, most: int | None = None) -> bool:
    """Expand a uniform storage to real bytes. Returns False if the values are unknown or larger than ``most``."""
    cell = tensor.cell
    if type(cell.values) is not UniformValues:
        return cell.values is not None
    if cell.nbytes > (max_known_bytes(tensor._device) if most is None else most):
        return False
    scalar = cell.values.scalar
    count = cell.nbytes // max(scalar.element_size(), 1)
    laid = scalar.expand(count).clone()
    _trace_copy(laid, scalar)
    cell.values = laid.untyped_storage()
    return True


_NO_CPU_KERNEL_PATTERN = re.compile("not implemented on the CPU|expected scalar type")
"""Errors of CPU kernels for what an accelerator's kernels support; the meta kernel has already accepted it."""


def compute_values(func: Any, args: Any, kwargs: Any, out_numel: int, tensors: list[VirtualTensor]) -> Any:
    """Run ``func`` on real values. Returns None if the result would be too large, or if the CPU has no such kernel,
    and () for operators that only write, such as ``_foreach_add_``. Call with the mode off.

    Uniform operands of any size are computed as one number if the operator is pointwise, or a reduction that
    returns the number itself.
    """
    biggest = max([out_numel, *(t.numel() for t in tensors)])
    if biggest > (8 << 20) and any(type(t.cell.values) is UniformValues for t in tensors):
        if not all(type(t.cell.values) is UniformValues or t.dim() == 0 for t in tensors):
            return None
        if func in _UNIFORM_REDUCTIONS:
            collapsed = _map_tensors(args, lambda t: _collapse_to_scalar(t).reshape((1,) * t.dim()))
            return _traced_call(func, collapsed, kwargs)
        if torch.Tag.pointwise in func.tags or func is aten._to_copy.default:
            collapsed = _map_tensors(args, lambda t: _collapse_to_scalar(t))
            kwargs = {**_map_values(kwargs, _collapse_to_scalar)}
            kwargs.pop("memory_format", None)
            if "device" in kwargs:
                kwargs["device"] = torch.device("cpu")
            scalar = _traced_call(func, collapsed, kwargs)
            return scalar.expand(out_numel) if isinstance(scalar, torch.Tensor) else None
        return None
    if out_numel > (64 << 20):
        return None
    here = {"device": torch.device("cpu"), "pin_memory": None}
    kwargs = {name: here.get(name, value) for name, value in kwargs.items()}
    try:
        result = _traced_call(func, _map_tensors(args, peek_values), _map_values(kwargs, peek_values))
        return () if result is None and not func._schema.returns else result
    except NotImplementedError:  # an accelerator's own kernel, such as flash attention, which the CPU lacks
        return None
    except RuntimeError as error:
        if _NO_CPU_KERNEL_PATTERN.search(str(error)):
            return None
        if not any(type(t.cell.values) is UniformValues for t in tensors):
            raise
        return _traced_call(
            func, _map_tensors(args, _known_strided), _map_values(kwargs, _known_strided)
        )  # a kernel that rejects strides of 0


def _traced_call(func: Any, args: Any, kwargs: Any) -> Any:
    return func(*args, **kwargs) if ValueTrace.now is None else ValueTrace.now.run_and_record(func, args, kwargs)


def _known_strided(tensor: VirtualTensor) -> torch.Tensor:
    """The tensor's known values with the tensor's own strides."""
    known = peek_values(tensor)
    assert known is not None
    laid: torch.Tensor = real.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)
    laid.copy_(known)
    _trace_copy(laid, known)
    return laid


def _collapse_to_scalar(tensor: VirtualTensor) -> torch.Tensor:
    if type(tensor.cell.values) is UniformValues:
        scalar: torch.Tensor = tensor.cell.values.scalar
        number = scalar.to(tensor.dtype)
        if number is not scalar:
            _trace_copy(number, scalar)
        return number
    known = peek_values(tensor)
    assert known is not None
    return known


def _map_tensors(value: Any, transform: Any) -> Any:
    if isinstance(value, VirtualTensor):
        return transform(value)
    if isinstance(value, list | tuple):
        return type(value)(_map_tensors(item, transform) for item in value)
    return value


def _map_values(kwargs: dict[str, Any], transform: Any) -> dict[str, Any]:
    return {name: _map_tensors(value, transform) for name, value in kwargs.items()}


def assumed_finiteness(func: Any, args: Any) -> bool | None:
    """The assumed result of a test for NaN or infinity on unknown values, or None if ``func`` is no such test."""
    if func in (aten.isnan.default, aten.isinf.default, aten.isposinf.default, aten.isneginf.default):
        return False
    if func is aten.isfinite.default:
        return True
    if func in (aten.ne.Tensor, aten.eq.Tensor) and args[0] is args[1]:
        return func is aten.eq.Tensor
    if func in (aten.eq.Scalar, aten.ne.Scalar) and isinstance(args[1], float) and not math.isfinite(args[1]):
        return func is aten.ne.Scalar
    return None


def storage_bytes(tensor: VirtualTensor) -> int:
    """Size of the tensor's whole storage in bytes."""
    return private.storage_bytes(tensor)
