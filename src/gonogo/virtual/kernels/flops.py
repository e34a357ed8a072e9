"""Floating-point operations of kernels with a stand-in, by the formulas of ``torch.utils.flop_counter``."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import torch

Computed = Callable[..., object]
"""Called for each kernel with its FLOPs, then the tensors that it reads and writes.

``kind``: ``product`` or ``attention``; ``done``: the fraction of the operations that the kernel actually executes,
half of them if a causal mask excludes the rest.
"""
CAUSAL_SHARE = 0.5


def ignore_flops(flops: int, *operands: torch.Tensor, kind: str = "", done: float = 1.0) -> None:
    """Default for callers that don't count."""


def product_flops(rows: int, inner: int, columns: int) -> int:
    """FLOPs of a matrix product."""
    return 2 * rows * inner * columns


def attention_flops(
    num_heads: int, lengths: Sequence[tuple[int, int]], size: int, v_head_dim: int, *, backward: bool = False
) -> int:
    """FLOPs of attention over (queries, keys): two matmuls forward, five backward, regardless of masks."""
    pairs = sum(queries * keys for queries, keys in lengths)
    sizes = 3 * size + 2 * v_head_dim if backward else size + v_head_dim
    return 2 * num_heads * pairs * sizes


def sequence_lengths(
    cu_seqlens_q: torch.Tensor, cu_seqlens_k: torch.Tensor, max_seqlen_q: int, max_seqlen_k: int
) -> list[tuple[int, int]]:
    """(queries, keys) for each sequence of a batch; the maximum lengths if the bounds are unknown."""
    ends = [known_integers(bounds) for bounds in (cu_seqlens_q, cu_seqlens_k)]
    if ends[0] is None or ends[1] is None:
        return [(max_seqlen_q, max_seqlen_k)] * (cu_seqlens_q.numel() - 1)
    of_q, of_k = ([end - begin for begin, end in itertools.pairwise(one)] for one in ends if one is not None)
    return list(zip(of_q, of_k, strict=True))


def known_integers(tensor: torch.Tensor) -> list[int] | None:
    """The values of an integer tensor; None if they are unknown."""
    mode = getattr(type(tensor), "virtual_mode", None)
    known = mode.known_values(tensor) if mode is not None else tensor
    return None if known is None else [int(number) for number in known.tolist()]
