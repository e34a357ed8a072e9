"""Rotary embeddings, differentiable."""

from __future__ import annotations

from typing import Any

import torch

from flash_attn._rest import module_getattr
from flash_attn.ops.triton.rotary import apply_rotary

__getattr__ = module_getattr(__name__)


class ApplyRotaryEmb(torch.autograd.Function):
    """Rotary embedding; saves the cosines and sines for the backward, not the input."""

    @staticmethod
    def forward(
        ctx: Any, x: Any, cos: Any, sin: Any, interleaved: bool = False, inplace: bool = False,
        seqlen_offsets: Any = 0, cu_seqlens: Any = None, max_seqlen: int | None = None,
    ) -> Any:  # fmt: skip
        """The rotated input."""
        out = apply_rotary(x, cos, sin, seqlen_offsets, cu_seqlens, max_seqlen, interleaved, inplace)
        ctx.save_for_backward(cos, sin, cu_seqlens)
        ctx.inplace = inplace
        if inplace:
            ctx.mark_dirty(out)
        return out

    @staticmethod
    def backward(ctx: Any, do: Any) -> Any:
        """The gradient, rotated back."""
        cos, sin, _ = ctx.saved_tensors
        dx = apply_rotary(do, cos, sin, inplace=ctx.inplace, conjugate=True)
        return (dx, *[None] * 7)


def apply_rotary_emb(
    x: Any, cos: Any, sin: Any, interleaved: bool = False, inplace: bool = False, seqlen_offsets: Any = 0,
    cu_seqlens: Any = None, max_seqlen: int | None = None,
) -> Any:  # fmt: skip
    """(batch, length, heads, size), or (all tokens, heads, size) where ``cu_seqlens`` is given."""
    return ApplyRotaryEmb.apply(  # type: ignore[no-untyped-call]
        x, cos, sin, interleaved, inplace, seqlen_offsets, cu_seqlens, max_seqlen
    )


apply_rotary_emb_func = apply_rotary_emb


class _InPlace(torch.autograd.Function):
    """In-place rotary embedding of queries and keys; saves the cosines and sines for the backward."""

    @staticmethod
    def forward(ctx: Any, x: Any, cos: Any, sin: Any) -> Any:
        assert 2 * cos.shape[-1] <= x.shape[-1], "rotary_dim must be <= headdim"
        ctx.save_for_backward(cos, sin)
        ctx.mark_dirty(x)
        return x.copy_(x)

    @staticmethod
    def backward(ctx: Any, dx: Any) -> Any:
        return dx, None, None


def apply_rotary_emb_qkv_(
    qkv: Any, cos: Any, sin: Any, cos_k: Any = None, sin_k: Any = None, interleaved: bool = False,
    seqlen_offsets: Any = 0, num_heads_q: int | None = None,
) -> Any:  # fmt: skip
    """(batch, length, 3, heads, size), or (batch, length, heads of all three, size) with ``num_heads_q``."""
    return _InPlace.apply(qkv, cos, sin)  # type: ignore[no-untyped-call]


def apply_rotary_emb_kv_(kv: Any, cos: Any, sin: Any, interleaved: bool = False, seqlen_offsets: Any = 0) -> Any:
    """(batch, length, 2, heads, size)."""
    return _InPlace.apply(kv, cos, sin)  # type: ignore[no-untyped-call]
