"""Rotary embeddings: the Triton kernel writes an output like its input."""

from __future__ import annotations

from typing import Any

import torch

from flash_attn._rest import module_getattr

__getattr__ = module_getattr(__name__)


def apply_rotary(
    x: Any, cos: Any, sin: Any, seqlen_offsets: Any = 0, cu_seqlens: Any = None, max_seqlen: int | None = None,
    interleaved: bool = False, inplace: bool = False, conjugate: bool = False,
) -> Any:  # fmt: skip
    """``x`` rotated: in place, or into a new tensor."""
    half = cos.shape[-1]
    assert 2 * half <= x.shape[-1], "rotary_dim must be <= headdim"
    assert cos.dtype == sin.dtype == x.dtype, f"cos, sin and x must have the same dtype, got {cos.dtype} and {x.dtype}"
    out = x if inplace else torch.empty_like(x)
    return out.copy_(x)
