"""Attention, and the layers around it that are written in Python."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F

from xformers._rest import missing_name_getattr
from xformers.ops import fmha
from xformers.ops.fmha import (
    AttentionBias,
    LowerTriangularMask,
    MemoryEfficientAttentionCutlassOp,
    MemoryEfficientAttentionFlashAttentionOp,
    memory_efficient_attention,
    memory_efficient_attention_forward,
)

__all__ = [
    "AttentionBias", "LowerTriangularMask", "MemoryEfficientAttentionCutlassOp",
    "MemoryEfficientAttentionFlashAttentionOp", "RMSNorm", "SwiGLU", "fmha", "memory_efficient_attention",
    "memory_efficient_attention_forward", "rms_norm", "swiglu", "unbind",
]  # fmt: skip
__getattr__ = missing_name_getattr(
    __name__,
    (
        *("AttentionOp", "AttentionOpBase", "AttentionOpDispatch", "memory_efficient_attention_backward"),
        *("memory_efficient_attention_forward_requires_grad", "memory_efficient_attention_partial", "merge_attentions"),
        *("scaled_index_add", "index_select_cat", "rms_norm_add", "rope_padded", "get_stack_strides", "stack_or_none"),
        *("SwiGLUOp", "SwiGLUOpDispatch", "SwiGLUFusedOp", "sparsify24", "sparsify24_like", "tree_attention"),
        *("sequence_parallel_leading_matmul", "sequence_parallel_trailing_matmul", "fused_allgather_and_linear"),
        *("fused_linear_and_reducescatter", "masked_matmul", "ModelParallel", "tiled_matmul"),
    ),
)


def unbind(x: torch.Tensor, dim: int) -> tuple[torch.Tensor, ...]:
    """``torch.unbind``, whose backward need not copy where the gradients lie as the pieces did."""
    return x.unbind(dim)


def rms_norm(x: torch.Tensor, weight: torch.Tensor | None, eps: float = 1e-6) -> torch.Tensor:
    """RMSNorm over the last dimension."""
    return F.rms_norm(x, (x.shape[-1],), weight, eps)


class RMSNorm(torch.nn.Module):
    """RMSNorm with a weight, as a module."""

    def __init__(self, dim: int, include_weight: bool = True, eps: float = 1e-6) -> None:
        super().__init__()
        self.eps = eps
        self.weight: Any = torch.nn.Parameter(torch.ones(dim)) if include_weight else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """One normalized tensor."""
        return rms_norm(x, self.weight, self.eps)


def swiglu(x: torch.Tensor, w1: Any, b1: Any, w2: Any, b2: Any, w3: Any, b3: Any, *, op: Any = None) -> torch.Tensor:
    """``(silu(x w1) * x w2) w3``."""
    return F.linear(F.silu(F.linear(x, w1, b1)) * F.linear(x, w2, b2), w3, b3)


class SwiGLU(torch.nn.Module):
    """The SwiGLU layer, its first two weights stored as one, as in DINOv2's checkpoints."""

    def __init__(
        self,
        in_features: int,
        hidden_features: int,
        out_features: int | None = None,
        bias: bool = True,
        *,
        _pack_weights: bool = True,
    ) -> None:
        super().__init__()
        out = out_features or in_features
        self.w12: Any = torch.nn.Linear(in_features, 2 * hidden_features, bias=bias) if _pack_weights else None
        if not _pack_weights:
            self.w1 = torch.nn.Linear(in_features, hidden_features, bias=bias)
            self.w2 = torch.nn.Linear(in_features, hidden_features, bias=bias)
        self.w3 = torch.nn.Linear(hidden_features, out, bias=bias)
        self.hidden_features, self.out_features, self.in_features = hidden_features, out, in_features
        self.op: Any = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The layer of one input."""
        halves: Sequence[torch.Tensor] = (
            self.w12(x).chunk(2, dim=-1) if self.w12 is not None else (self.w1(x), self.w2(x))
        )
        hidden: torch.Tensor = self.w3(F.silu(halves[0]) * halves[1])
        return hidden
