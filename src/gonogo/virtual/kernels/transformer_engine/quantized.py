"""FP8 tensors: what Transformer Engine's quantizers allocate to create and to fill one (csrc/quantizer.cpp).

The data are bytes, rowwise, columnwise or both. Up to Hopper, GEMMs read rowwise data only, so columnwise data are
stored as a transpose. Per-tensor scaling (delayed and current) has one scale; blockwise scaling has one per 128x128
elements or per 128 in a row; MXFP8 has one byte per 32. The classes are those of Transformer Engine's Python code.
"""

from __future__ import annotations

import inspect
import itertools
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch

from gonogo.finding import translated
from gonogo.virtual.kernels.checks import check
from gonogo.virtual.unsupported import UnsupportedOperator

NOT_COVERED = translated(
    "gonogo's stand-in for Transformer Engine's compiled library covers only training in bf16, fp16, "
    "fp32 and FP8 (delayed, current and block scaling, MXFP8)"
)
DELAYED, CURRENT, BLOCKS, MXFP8 = (
    *("Float8Quantizer", "Float8CurrentScalingQuantizer", "Float8BlockQuantizer", "MXFP8Quantizer"),
)
_TENSORS = {DELAYED: "Float8Tensor", CURRENT: "Float8Tensor", BLOCKS: "Float8BlockwiseQTensor", MXFP8: "MXFP8Tensor"}
"""Tensor class by quantizer class."""
_DATA = ("_data", "_transpose", "_rowwise_data", "_columnwise_data")
_SCALE_ATTRIBUTES = ("_scale_inv", "_rowwise_scale_inv", "_columnwise_scale_inv")
_OF_32, _OF_128 = 32, 128
AllocateFunction = Callable[[Sequence[int], torch.dtype], torch.Tensor]
"""Allocates uninitialized memory on the device."""


def recipe_name(quantizer: Any) -> str:
    """The recipe, by the name of the quantizer's class. Raises UnsupportedOperator if it isn't covered."""
    for one in type(quantizer).__mro__:
        if one.__name__ in _TENSORS and one.__module__.startswith("transformer_engine."):
            return one.__name__
    raise UnsupportedOperator(type(quantizer).__name__, NOT_COVERED)


def is_quantized(value: Any) -> bool:
    """True if it is an FP8 tensor, by its storage classes (``Float8TensorStorage``, ``Float8TensorBase``)."""
    names = {one.__name__.removesuffix("Storage").removesuffix("Base") for one in type(value).__mro__}
    return not names.isdisjoint(_TENSORS.values())


def stored_tensors(tensor: Any) -> list[torch.Tensor]:
    """The data and scale tensors of an FP8 tensor."""
    found = [getattr(tensor, name, None) for name in (*_DATA, *_SCALE_ATTRIBUTES)]
    return [one for one in found if isinstance(one, torch.Tensor)]


def tensor_shape(tensor: Any) -> tuple[int, ...]:
    """The shape of any tensor; for an FP8 tensor with columnwise data only, derived from its transpose."""
    if not is_quantized(tensor):
        return tuple(tensor.shape)
    rows, columns = ([getattr(tensor, name, None) for name in names] for names in (_DATA[::2], _DATA[1::2]))
    by_rows = next((one for one in rows if one is not None), None)
    if by_rows is not None:
        return tuple(by_rows.shape)
    by_columns = next(one for one in columns if one is not None)
    is_mxfp8 = any(one.__name__.startswith(_TENSORS[MXFP8]) for one in type(tensor).__mro__)
    return tuple(by_columns.shape) if is_mxfp8 else (*by_columns.shape[1:], by_columns.shape[0])


def scale_tensors(tensor: Any) -> list[torch.Tensor]:
    """The scale tensors of an FP8 tensor."""
    found = [getattr(tensor, name, None) for name in _SCALE_ATTRIBUTES]
    return [one for one in found if isinstance(one, torch.Tensor)]


def supports_non_tn_fp8(capability: tuple[int, int]) -> bool:
    """``nvte_is_non_tn_fp8_gemm_supported``: True if GEMMs take FP8 operands in any layout, without a transpose."""
    return (10, 0) <= capability < (12, 0) or capability >= (13, 0)


def make_quantized(
    quantizer: Any, shape: Sequence[int], dtype: torch.dtype, capability: tuple[int, int], allocate: AllocateFunction
) -> Any:
    """``create_tensor``: a tensor of the quantizer's class (the storage only if ``quantizer.internal``), posing as
    ``dtype``."""
    kind = recipe_name(quantizer)
    by_rows, by_columns = _rowwise_columnwise_usage(quantizer, kind, capability)
    parts: dict[str, Any] = {"fp8_dtype": quantizer.dtype, "quantizer": quantizer}
    if kind in (DELAYED, CURRENT):
        parts["data"] = allocate(shape, torch.uint8) if by_rows else None
        parts["data_transpose"] = allocate(_transposed_shape(shape), torch.uint8) if by_columns else None
        parts["fp8_scale_inv"] = allocate((1,), torch.float32)
    else:
        of_scales = torch.uint8 if kind == MXFP8 else torch.float32
        for name, wanted, columns in (("rowwise", by_rows, False), ("columnwise", by_columns, True)):
            of_data = _transposed_shape(shape) if columns and kind == BLOCKS else shape
            parts[f"{name}_data"] = allocate(of_data, torch.uint8) if wanted else None
            of_one = _scale_shape(quantizer, kind, shape, columns)
            parts[f"{name}_scale_inv"] = allocate(of_one, of_scales) if wanted else None
        if kind == BLOCKS:
            parts["is_2D_scaled"] = quantizer.block_scaling_dim == 2
        else:
            parts["with_gemm_swizzled_scales"] = bool(getattr(quantizer, "optimize_for_gemm", False))
    whole = getattr(sys.modules[type(quantizer).__module__], _TENSORS[kind])
    if quantizer.internal:
        return _instantiate(whole.__mro__[1], {**parts, "fake_dtype": dtype})
    strides = [*itertools.accumulate(reversed(tuple(shape)[1:]), lambda a, b: a * b, initial=1)][::-1]
    device = next(one.device for one in parts.values() if isinstance(one, torch.Tensor))
    given = {**parts, "shape": tuple(shape), "stride": strides[: len(shape)], "dtype": dtype, "device": device}
    return _instantiate(whole, given)


def update_quantized(quantizer: Any, tensor: Any, capability: tuple[int, int], allocate: AllocateFunction) -> None:
    """``convert_and_update_tensor``: allocate the layouts that the quantizer needs, and free the others."""
    kind = recipe_name(quantizer)
    shape = tensor_shape(tensor)
    by_rows, by_columns = _rowwise_columnwise_usage(quantizer, kind, capability)
    check(by_rows or by_columns, f"Invalid usages for {kind}.")
    if kind in (DELAYED, CURRENT):
        for place, wanted, of_data in (("_data", by_rows, shape), ("_transpose", by_columns, _transposed_shape(shape))):
            there = getattr(tensor, place) if wanted else None
            setattr(tensor, place, allocate(of_data, torch.uint8) if wanted and there is None else there)
        tensor._transpose_invalid = not by_columns
        return
    of_scales = torch.uint8 if kind == MXFP8 else torch.float32
    for name, wanted, columns in (("rowwise", by_rows, False), ("columnwise", by_columns, True)):
        of_data = _transposed_shape(shape) if columns and kind == BLOCKS else shape
        of_one = _scale_shape(quantizer, kind, shape, columns)
        for part, of_part, dtype in (("data", of_data, torch.uint8), ("scale_inv", of_one, of_scales)):
            place = f"_{name}_{part}"
            there = getattr(tensor, place) if wanted else None
            setattr(tensor, place, allocate(of_part, dtype) if wanted and there is None else there)


def fill_quantized(quantizer: Any, allocate: AllocateFunction) -> None:
    """``quantize``: the temporary buffer for the amax of current scaling, and its all-reduce between ranks."""
    if recipe_name(quantizer) != CURRENT:
        return
    largest = allocate((2,), torch.float32)[:1]
    if getattr(quantizer, "with_amax_reduction", False):
        group = quantizer.amax_reduction_group
        torch.distributed.all_reduce(largest, op=torch.distributed.ReduceOp.MAX, group=group)


def _rowwise_columnwise_usage(quantizer: Any, kind: str, capability: tuple[int, int]) -> tuple[bool, bool]:
    by_rows, by_columns = bool(quantizer.rowwise_usage), bool(quantizer.columnwise_usage)
    if kind in (DELAYED, CURRENT) and supports_non_tn_fp8(capability):
        return True, False
    return by_rows, by_columns


def _transposed_shape(shape: Sequence[int]) -> tuple[int, ...]:
    return (shape[-1], *shape[:-1]) if len(shape) else ()


def _scale_shape(quantizer: Any, kind: str, shape: Sequence[int], columns: bool) -> tuple[int, int]:
    last = shape[-1] if len(shape) else 1
    rows = 1
    for size in shape[:-1]:
        rows *= size
    if kind == MXFP8:
        check(
            last % _OF_32 == 0 and rows % _OF_32 == 0,
            f"MXFP8 requires tensor dims that are divisible by 32 (got shape=({','.join(map(str, shape))}))",
        )
        if columns:
            return _round_up(rows // _OF_32, 4), _round_up(last, _OF_128)
        return _round_up(rows, _OF_128), _round_up(last // _OF_32, 4)
    inner, outer = (rows, last) if columns else (last, rows)
    if quantizer.block_scaling_dim == 2:
        return -(-outer // _OF_128), _round_up(-(-inner // _OF_128), 4)
    return -(-inner // _OF_128), _round_up(outer, 4)


def _round_up(number: int, alignment: int) -> int:
    return -(-number // alignment) * alignment


def _instantiate(kind: Any, attributes: dict[str, Any]) -> Any:
    """An instance of ``kind``, without the optional arguments that this release doesn't accept."""
    known = {
        name
        for one in kind.__mro__
        if "__new__" in vars(one) and one is not object
        for name in _constructor_parameters(one)
    }
    optional = ("fake_dtype", "stride", "device", "with_gemm_swizzled_scales")
    return kind(**{name: value for name, value in attributes.items() if name in known or name not in optional})


def _constructor_parameters(kind: Any) -> list[str]:
    try:
        return list(inspect.signature(kind.__new__).parameters)
    except ValueError:  # the signature of torch.Tensor can't be inspected
        return []
