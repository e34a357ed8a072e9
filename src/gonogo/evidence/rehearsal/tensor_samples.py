"""Compares samples of two tensors: whether they are the same weights, perhaps in another dtype."""

from __future__ import annotations

from typing import Literal

from gonogo.evidence.rehearsal.lives import TensorSample

_ROUNDING = 1 / 64
"""Relative to the largest sampled element: two roundings to bfloat16, but far from another model's weights."""
_PACKED = ("uint8", "int8", "uint32", "int32", "float8_e4m3fn", "float8_e5m2", "float4_e2m1fn_x2")


def compare_samples(one: TensorSample, other: TensorSample) -> Literal["same", "rounded", "packed", "other"]:
    """How two samples relate; ``packed``: one is quantized, so that its elements can't be compared."""
    if one.dtype == other.dtype and one.shape == other.shape and one.digest == other.digest:
        return "same"
    if one.dtype != other.dtype and (one.dtype in _PACKED or other.dtype in _PACKED):
        return "packed"
    if one.shape != other.shape:
        return "other"
    if one.dtype != other.dtype and len(one.values) == len(other.values):
        size = max(map(abs, one.values), default=0.0)
        near = all(abs(a - b) <= _ROUNDING * size for a, b in zip(one.values, other.values, strict=True))
        return "rounded" if near else "other"
    return "other"


def may_be_same_weights(one: TensorSample, other: TensorSample) -> bool:
    """Whether two samples may be of the same weights."""
    return compare_samples(one, other) != "other"
