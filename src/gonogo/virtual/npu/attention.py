"""PyTorch's own attention as torch_npu runs it: with ``npu_fusion_attention`` if its conditions hold, else as math.

The conditions are op-plugin's (op_plugin/ops/opapi/ScaledDotProductAttentionKernelNpuOpApi.cpp): four dimensions, no
mask or a boolean one. A causal call creates the compressed 2048 × 2048 mask that the kernel reads. An additive mask
takes the math path, which keeps n × n scores.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from gonogo.virtual.patching.patches import Patches
from gonogo.virtual.tensor import VirtualTensor

_MASK_SIDE = 2048
_MAX_HEADS = 2048
_MAX_HEAD_DIM = 512
_UNLIMITED_TOKENS = 2147483647
_LEFT_UP_CAUSAL = 2


def install() -> Callable[[], None]:
    """Patch ``scaled_dot_product_attention`` for NPU tensors; returns the undo."""
    patches = Patches()
    original = F.scaled_dot_product_attention

    def scaled_dot_product_attention(
        query: Any,
        key: Any,
        value: Any,
        attn_mask: Any = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Any:
        if not _uses_fused_attention(query, key, value, attn_mask):
            return original(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)
        if is_causal and attn_mask is not None:
            raise RuntimeError("The attn_mask should be none when is_causal is true, but got true-value")
        mask = None
        if is_causal:
            mask = torch.ones(_MASK_SIDE, _MASK_SIDE, dtype=torch.bool, device=query.device).triu(1)
        elif attn_mask is not None:
            mask = attn_mask.logical_not()
        return torch.ops.npu.npu_fusion_attention(
            query,
            key,
            value,
            query.shape[1],
            "BNSD",
            atten_mask=mask,
            scale=1.0 / math.sqrt(query.shape[-1]) if scale is None else scale,
            keep_prob=1.0 - dropout_p,
            pre_tockens=_UNLIMITED_TOKENS,
            next_tockens=0 if is_causal else _UNLIMITED_TOKENS,
            sparse_mode=_LEFT_UP_CAUSAL if is_causal else 0,
        )[0]

    patches.set(F, "scaled_dot_product_attention", scaled_dot_product_attention)
    patches.set(torch._C._nn, "scaled_dot_product_attention", scaled_dot_product_attention)
    return patches.undo


def _uses_fused_attention(query: Any, key: Any, value: Any, mask: Any) -> bool:
    operands = (query, key, value)
    return (
        all(isinstance(t, VirtualTensor) and t.device.type == "npu" and t.dim() == 4 for t in operands)
        and query.dtype in (torch.float16, torch.bfloat16, torch.float32)
        and (mask is None or mask.dtype == torch.bool)
        and query.shape[1] <= _MAX_HEADS
        and query.shape[-1] <= _MAX_HEAD_DIM
        and 0 < key.shape[1] <= query.shape[1]
        and query.shape[1] % key.shape[1] == 0
    )
