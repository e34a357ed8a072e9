"""Attention as on real hardware: with the fused operators, not the math path that meta tensors take.

The choice follows aten/src/ATen/native/transformers/cuda/sdp_utils.cpp (``select_sdp_backend``): flash if its
conditions hold, else memory-efficient, else math. Both fused operators save the output and a log-sum-exp for
backward, never the n × n scores.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from gonogo.virtual import private
from gonogo.virtual.patching.after_import import after_import
from gonogo.virtual.patching.patches import Patches
from gonogo.virtual.tensor import local_tensors

aten = torch.ops.aten
_backends: Any = torch.backends.cuda
_HALF_DTYPES = (torch.float16, torch.bfloat16)
_MASK_ALIGNMENT = 16


def install(compute_capability: tuple[int, int]) -> Callable[[], None]:
    """Patch ``scaled_dot_product_attention`` for accelerator tensors; returns the undo."""
    patches = Patches()
    original = F.scaled_dot_product_attention
    known = {"enable_gqa"} if "enable_gqa" in (original.__doc__ or "") else set()  # newer than torch 2.4

    def scaled_dot_product_attention(
        query: Any,
        key: Any,
        value: Any,
        attn_mask: Any = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        **options: Any,
    ) -> Any:
        operands = (query, key, value)
        enable_gqa = options.get("enable_gqa", False)
        if set(options) - known or not all(_is_virtual_operand(operand) for operand in operands):
            return original(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, **options)
        query, key, value, attn_mask = _cast_for_autocast(query, key, value, attn_mask)
        if attn_mask is not None and attn_mask.dtype not in (torch.bool, query.dtype):
            _raise_torch_dtype_error(original, query.dtype, attn_mask.dtype)
        grouped = key.shape[1] != query.shape[1]
        if _can_use_flash(query, key, value, attn_mask, compute_capability) and (not grouped or enable_gqa):
            return _run_flash_attention(query, key, value, dropout_p, is_causal, scale)
        if _can_use_efficient(query, key, value, compute_capability) and not grouped:
            return _run_efficient_attention(query, key, value, attn_mask, dropout_p, is_causal, scale)
        return original(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, **options)

    scaled_dot_product_attention.__doc__ = original.__doc__
    patches.set(F, "scaled_dot_product_attention", scaled_dot_product_attention)
    patches.set(torch._C._nn, "scaled_dot_product_attention", scaled_dot_product_attention)
    patches.on_undo(
        after_import(
            "torch.nested._internal.sdpa", functools.partial(_patch_jagged_attention, patches, compute_capability)
        )
    )
    # Its kernels take whole layers, on nested tensors if rows are masked; without it the same layers are computed.
    patches.set(torch.backends.mha, "get_fastpath_enabled", lambda: False)
    return patches.undo


def _patch_jagged_attention(patches: Patches, capability: tuple[int, int], module: Any) -> None:
    """Choose the kernel for jagged nested tensors, for which torch's Python asks C++, which sees no accelerator
    here."""

    def wrap_can_use(original: Any, rule: Callable[..., bool], *more: Any) -> Any:
        def can_use(params: Any, debug: bool = False) -> bool:
            operands = (params.query, params.key, params.value)
            if any(operand.device.type in ("cpu", "meta") for operand in operands):
                return bool(original(params, debug))
            return rule(*operands, *more, capability)

        return can_use

    patches.set(module, "can_use_flash_attention", wrap_can_use(module.can_use_flash_attention, _can_use_flash, None))
    patches.set(
        module, "can_use_efficient_attention", wrap_can_use(module.can_use_efficient_attention, _can_use_efficient)
    )
    patches.set(module, "can_use_cudnn_attention", wrap_can_use(module.can_use_cudnn_attention, lambda *_: False))


def _is_virtual_operand(operand: Any) -> bool:
    """True for a 4-dimensional accelerator tensor that is virtual, or a DTensor of one, as in context parallelism."""
    return bool(local_tensors(operand)) and operand.device.type != "cpu" and operand.dim() == 4


def _cast_for_autocast(*tensors: Any) -> Any:
    dtype = private.autocast_dtype()
    if dtype is None:
        return tensors
    return tuple(
        t.to(dtype) if t is not None and t.is_floating_point() and t.dtype != torch.float64 else t for t in tensors
    )


def _raise_torch_dtype_error(original: Any, query: torch.dtype, mask: torch.dtype) -> None:
    """Raise torch's error for a mask with another dtype than the query; releases differ in which ones they accept."""
    with private.without_dispatch_modes():
        operand = torch.empty(1, 1, 1, 8, dtype=query, device="meta")
        original(operand, operand, operand, attn_mask=torch.empty(1, 1, 1, 1, dtype=mask, device="meta"))


def _can_use_flash(query: Any, key: Any, value: Any, mask: Any, capability: tuple[int, int]) -> bool:
    return (
        _backends.flash_sdp_enabled()
        and capability >= (8, 0)
        and mask is None
        and query.dtype in _HALF_DTYPES
        and query.dtype == key.dtype == value.dtype
        and query.shape[-1] == key.shape[-1] == value.shape[-1] <= 256
        and query.shape[1] % max(key.shape[1], 1) == 0
    )


def _can_use_efficient(query: Any, key: Any, value: Any, capability: tuple[int, int]) -> bool:
    allowed = (*_HALF_DTYPES, torch.float32) if capability >= (8, 0) else (torch.float16, torch.float32)
    return (
        _backends.mem_efficient_sdp_enabled()
        and capability >= (5, 0)
        and query.dtype in allowed
        and query.dtype == key.dtype == value.dtype
        and query.shape[-1] == key.shape[-1]
    )


def _run_flash_attention(
    query: Any, key: Any, value: Any, dropout_p: float, is_causal: bool, scale: float | None
) -> Any:
    size = query.shape[-1]
    scale = scale if scale is not None else 1.0 / math.sqrt(size)
    missing = -size % 8
    if missing:
        query, key, value = (F.pad(t, (0, missing)) for t in (query, key, value))
    output = aten._scaled_dot_product_flash_attention(query, key, value, dropout_p, is_causal, False, scale=scale)[0]
    return output[..., :size] if missing else output


def _run_efficient_attention(
    query: Any, key: Any, value: Any, mask: Any, dropout_p: float, is_causal: bool, scale: float | None
) -> Any:
    if mask is not None:
        mask = _to_attention_bias(mask, query, key)
    keeps = torch.is_grad_enabled() and any(t.requires_grad for t in (query, key, value))
    return aten._scaled_dot_product_efficient_attention(
        query, key, value, mask, keeps, dropout_p, is_causal, scale=scale
    )[0]


def _to_attention_bias(mask: Any, query: Any, key: Any) -> Any:
    """The mask as the kernel takes it: additive, of the query's dtype, expanded, with its last stride aligned."""
    if mask.dtype == torch.bool:
        mask = torch.zeros_like(mask, dtype=query.dtype).masked_fill_(mask.logical_not(), -math.inf)
    elif mask.dtype != query.dtype:
        mask = mask.to(query.dtype)
    length = mask.shape[-1]
    missing = -length % _MASK_ALIGNMENT
    if missing:
        mask = F.pad(mask, (0, missing))[..., :length]
    return mask.expand(query.shape[0], query.shape[1], query.shape[2], key.shape[2])
