"""Token ids and labels out of range of the table that they index: a device-side assert of the real kernel.

Shapes don't show this. If the indices are known, they are compared with the number of rows, as the kernels do
(torch's ``aten/src/ATen/native/cuda``: ``Indexing.cu``, ``NLLLoss2d.cu``, ``Loss.cu``).
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from gonogo.virtual.mode import HANDLERS, VirtualMode
from gonogo.virtual.tensor import VirtualTensor
from gonogo.virtual.values import contents
from gonogo.virtual.values.value_trace import ValueTrace

aten = torch.ops.aten
_MAX_INDICES = 1 << 24
"""Larger index tensors are not checked."""


def _embedding_with_bounds_check(mode: VirtualMode, func: Any, args: Any, kwargs: Any) -> Any:
    weight, indices = args[0], args[1]
    known = _known_bounds(indices, weight.shape[0] if weight.dim() == 2 else 0)
    if known is not None:
        low, high = known
        if low < 0 or high >= weight.shape[0]:
            beyond = low if low < 0 else high
            _raise_index_error(
                weight, f"`srcIndex < srcSelectDimSize` failed: index {beyond} of a table of {weight.shape[0]} rows",
                "index out of range in self",
            )  # fmt: skip
    return mode.run(mode.operator(func), args, kwargs)


def _nll_loss_with_bounds_check(mode: VirtualMode, func: Any, args: Any, kwargs: Any) -> Any:
    logits, target = args[0], args[1]
    ignored = args[4] if len(args) > 4 else kwargs.get("ignore_index", -100)
    classes = logits.shape[1 if logits.dim() > 1 else 0] if logits.dim() else 0
    known = _known_bounds(target, classes, ignore_index=ignored)
    if known is not None:
        low, high = known
        if low < 0 or high >= classes:
            beyond = low if low < 0 else high
            _raise_index_error(
                logits, f"`t >= 0 && t < n_classes` failed: label {beyond} of {classes} classes",
                f"Target {beyond} is out of bounds.",
            )  # fmt: skip
    return mode.run(mode.operator(func), args, kwargs)


def _known_bounds(indices: torch.Tensor, rows: int, ignore_index: int | None = None) -> tuple[int, int] | None:
    """Minimum and maximum of indices into a table with ``rows`` rows; None if they are unknown or there are none."""
    if not rows or not 0 < indices.numel() <= _MAX_INDICES:
        return None
    values = contents.peek_values(indices) if isinstance(indices, VirtualTensor) else indices
    if values is None or values.device.type != "cpu":
        return None
    if ValueTrace.now is not None:
        ValueTrace.now.record_test(values, functools.partial(_are_in_range, rows, ignore_index))
    return _min_and_max(values, ignore_index)


def _min_and_max(values: torch.Tensor, ignore_index: int | None) -> tuple[int, int] | None:
    if ignore_index is not None:
        values = values[values != ignore_index]
    return (int(values.min()), int(values.max())) if values.numel() else None


def _are_in_range(rows: int, ignore_index: int | None, values: torch.Tensor) -> bool:
    low, high = _min_and_max(values, ignore_index) or (0, 0)
    return low >= 0 and high < rows


def _raise_index_error(tensor: torch.Tensor, assertion: str, cpu_message: str) -> None:
    if tensor.is_cpu:
        raise IndexError(cpu_message)
    raise RuntimeError(f"CUDA error: device-side assert triggered (Assertion {assertion})")


HANDLERS[aten.embedding.default] = _embedding_with_bounds_check
for _loss_operator in (aten.nll_loss_forward.default, aten.nll_loss2d_forward.default):
    HANDLERS[_loss_operator] = _nll_loss_with_bounds_check
