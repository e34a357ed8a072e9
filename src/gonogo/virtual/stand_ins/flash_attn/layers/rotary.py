"""Rotary embeddings, differentiable."""

from __future__ import annotations

from typing import Any

import torch

from flash_attn.ops.triton.rotary import apply_rotary


class ApplyRotaryEmb(torch.autograd.Function):
    """Keeps the cosines and sines, not the input."""

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
