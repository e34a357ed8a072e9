"""Tracks one fact about unknown numbers: that a norm is not negative.

Programs check a norm for "invalid" by its sign (DeepSpeed: ``norm < 0``, ``norm == -1``). Small unknown tensors carry
the fact :attr:`Cell.nonnegative`, so that such a check has its true result instead of counting as an unknown
condition.
"""

from __future__ import annotations

from typing import Any

import torch

from gonogo.virtual.tensor import VirtualTensor
from gonogo.virtual.values import contents
from gonogo.virtual.values.value_trace import ValueTrace

aten = torch.ops.aten
MAX_STORAGE_BYTES = 4096
"""Maximum size in bytes of storages that carry the fact."""

_MAKES = {"norm", "linalg_vector_norm", "_foreach_norm", "abs", "exp", "sqrt", "square", "sigmoid", "var", "std",
          "_softmax", "relu", "linalg_matrix_norm"}  # fmt: skip
_NONNEGATIVE_PRESERVING_OPERATORS = {
    "sum",
    "mean",
    "stack",
    "cat",
    "amax",
    "amin",
    "max",
    "min",
    "maximum",
    "minimum",
    "pow",
    "mul",
    "add",
    "div",
    "_to_copy",
    "clone",
    "mul_",
    "add_",
    "div_",
    "copy_",
    "reciprocal",
    "clamp",
    "clamp_min",
    "sqrt_",
    "prod",
    "full_like",
    "pow_",
    "cumsum",
}


def record_sign(name: str, args: Any, tensors: list[VirtualTensor], out: Any) -> None:
    """Record on an operator's unknown results whether they are known to be non-negative."""
    if name in _MAKES:
        fact = True
    elif name in _NONNEGATIVE_PRESERVING_OPERATORS:
        fact = all(_is_nonnegative(t) for t in tensors) and all(_is_nonnegative_number(a) for a in args)
    elif name == "where":
        fact = _is_where_nonnegative(args)
    else:
        fact = False
    for tensor in out if isinstance(out, list | tuple) else (out,):
        if isinstance(tensor, VirtualTensor):
            tensor.cell.nonnegative = fact


def compare_by_sign(func: Any, args: Any) -> bool | None:
    """The result of a comparison with a number if the sign alone decides it, else None."""
    if len(args) != 2 or not isinstance(args[0], VirtualTensor) or not args[0].cell.nonnegative:
        return None
    number = args[1]
    if isinstance(number, bool) or not isinstance(number, int | float):
        return None
    if func is aten.lt.Scalar and number <= 0:
        return False
    if func in (aten.le.Scalar, aten.eq.Scalar) and number < 0:
        return False
    if func is aten.ge.Scalar and number <= 0:
        return True
    if func in (aten.gt.Scalar, aten.ne.Scalar) and number < 0:
        return True
    return None


def _is_nonnegative(tensor: VirtualTensor) -> bool:
    if tensor.cell.values is None:
        return tensor.cell.nonnegative
    known = contents.peek_values(tensor)
    if known is None or known.numel() > MAX_STORAGE_BYTES or known.is_complex():
        return False
    if ValueTrace.now is not None:
        ValueTrace.now.record_test(known, _all_nonnegative)
    return _all_nonnegative(known)


def _all_nonnegative(values: torch.Tensor) -> bool:
    return bool((values >= 0).all())


def _is_nonnegative_number(value: Any) -> bool:
    return not isinstance(value, int | float) or value >= 0


def _is_where_nonnegative(args: Any) -> bool:
    condition, yes, no = args[0], args[1], args[2]
    known = contents.read_values(condition) if isinstance(condition, VirtualTensor) else None
    chosen = [yes, no] if known is None else [yes] * bool(known.any()) + [no] * (not bool(known.all()))
    return all(isinstance(t, VirtualTensor) and _is_nonnegative(t) for t in chosen)
