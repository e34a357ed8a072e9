"""Grouped matrix products (``torch._grouped_mm``: all experts of an MoE layer at once) in float32 and float16.

Kernels support both since torch 2.9 (https://github.com/pytorch/pytorch/pull/162059), but torch's meta function still
accepts only bfloat16. It is called with bfloat16 tensors whose rows have the same stride in bytes.
"""

from __future__ import annotations

from typing import Any

import torch
from packaging.version import Version

from gonogo.virtual import private
from gonogo.virtual.dispatch.placement import common_device
from gonogo.virtual.mode import HANDLERS, VirtualMode
from gonogo.virtual.tensor import Spec, VirtualTensor
from gonogo.virtual.values import propagation, real

_SUPPORTED_DTYPES = (torch.float32, torch.float16)
_GROUPED_MM_VERSION = Version("2.9")
_ALIGNMENT = 16
"""Alignment of rows in bytes (aten/src/ATen/native/GroupedMMUtils.h)."""


def _grouped_product(mode: VirtualMode, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    left, right = args[0], args[1]
    operator = mode.operator(func)
    if left.dtype != right.dtype or left.dtype not in _SUPPORTED_DTYPES or _has_bias_or_out_dtype(left, args, kwargs):
        return mode.run(operator, args, kwargs)
    tensors = [value for value in (*args, *kwargs.values()) if isinstance(value, VirtualTensor)]
    device = common_device(func, tensors, args)
    offsets = args[2] if len(args) > 2 else kwargs.get("offs")
    with private.without_dispatch_modes():
        groups = None if offsets is None else real.meta(offsets.shape, dtype=offsets.dtype)
        shape = func(_as_bfloat16_meta(left), _as_bfloat16_meta(right), groups).shape
    out = mode._new_tensor(*_output_spec(shape, left.dtype, device))
    propagation.propagate_values(mode.ledger, operator, args, kwargs, tensors, out)
    return out


def _has_bias_or_out_dtype(left: torch.Tensor, args: Any, kwargs: dict[str, Any]) -> bool:
    """True if a bias or another output dtype is requested, both of which torch's own meta function rejects."""
    bias = args[3] if len(args) > 3 else kwargs.get("bias")
    dtype = args[4] if len(args) > 4 else kwargs.get("out_dtype")
    return bias is not None or dtype not in (None, left.dtype)


def _as_bfloat16_meta(matrix: torch.Tensor) -> torch.Tensor:
    times = matrix.element_size() // 2
    strides = [stride if stride == 1 else stride * times for stride in matrix.stride()]
    return real.meta_strided(matrix.shape, strides, dtype=torch.bfloat16)


def _output_spec(shape: torch.Size, dtype: torch.dtype, device: torch.device) -> tuple[Spec, int]:
    """Spec and bytes of the result, whose rows are padded to the alignment, as in a CUDA build."""
    columns, size = shape[-1], dtype.itemsize
    row = -(-columns * size // _ALIGNMENT) * _ALIGNMENT // size if torch.version.cuda else columns
    strides = (shape[-2] * row, row, 1)[-len(shape) :]
    return Spec.of(shape, strides, dtype, device), shape[:-1].numel() * row * size


if Version(torch.__version__) >= _GROUPED_MM_VERSION and hasattr(torch.ops.aten, "_grouped_mm"):
    HANDLERS[torch.ops.aten._grouped_mm.default] = _grouped_product
