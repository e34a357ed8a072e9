"""flash-attn's compiled module ``flash_attn_2_cuda`` (csrc/flash_attn/flash_api.cpp of 2.8.3).

The stand-in makes the same checks as C++, with the same messages, and allocates the same tensors: outputs,
log-sum-exp, and in the backward the float32 accumulators. Not covered is split-KV for few, short queries (a transient
of generation, a few MiB).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import torch

from gonogo.finding import Text, translated
from gonogo.virtual.kernels.checks import check, on_accelerator
from gonogo.virtual.kernels.flops import CAUSAL_SHARE, Computed, attention_flops, ignore_flops, sequence_lengths

VERSION = "2.8.3"
ASSUMED = translated("flash-attn {version} is installed on the machine").format(version=VERSION)
_BLOCK_ROWS = 128
"""The block size in query rows."""


class FlashAttention(ModuleType):
    """Replaces the module ``flash_attn_2_cuda``."""

    def __init__(
        self,
        mark_written: Callable[[torch.Tensor], object],
        assume: Callable[[Text], object],
        compute_capability: tuple[int, int],
        assumed: Text = ASSUMED,
        count_flops: Computed = ignore_flops,
    ) -> None:
        super().__init__("flash_attn_2_cuda", __doc__)
        self._written = mark_written
        self._assume = assume
        self._assumed = assumed
        self._computed = count_flops
        self._capability = compute_capability

    def fwd(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        out: torch.Tensor | None,
        alibi_slopes: torch.Tensor | None,
        p_dropout: float,
        softmax_scale: float,
        is_causal: bool,
        window_size_left: int,
        window_size_right: int,
        softcap: float,
        return_softmax: bool,
        generator: Any = None,
    ) -> list[torch.Tensor]:
        """``mha_fwd``: [out, softmax_lse, p, rng_state]."""
        self._check_inputs(q, k, v, softcap, p_dropout)
        batch, length_q, heads, size = q.shape
        length_k, heads_k = k.shape[1], k.shape[2]
        check(batch > 0, "batch size must be positive")
        _check_shape("k", k, (batch, length_k, heads_k, size))
        _check_shape("v", v, (batch, length_k, heads_k, size))
        self._count_attention(q, k, v, [(length_q, length_k)] * batch, is_causal)
        kept = (batch, heads, _round_up(length_q, _BLOCK_ROWS), _round_up(length_k, _BLOCK_ROWS))
        return self._allocate_forward_outputs(
            q, out, (batch, heads, length_q), kept if return_softmax and p_dropout > 0 else (0,)
        )

    def varlen_fwd(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        out: torch.Tensor | None,
        cu_seqlens_q: torch.Tensor,
        cu_seqlens_k: torch.Tensor,
        seqused_k: torch.Tensor | None,
        leftpad_k: torch.Tensor | None,
        block_table: torch.Tensor | None,
        alibi_slopes: torch.Tensor | None,
        max_seqlen_q: int,
        max_seqlen_k: int,
        p_dropout: float,
        softmax_scale: float,
        zero_tensors: bool,
        is_causal: bool,
        window_size_left: int,
        window_size_right: int,
        softcap: float,
        return_softmax: bool,
        generator: Any = None,
    ) -> list[torch.Tensor]:
        """``mha_varlen_fwd``: packed sequences of different lengths."""
        self._check_inputs(q, k, v, softcap, p_dropout)
        total_q, heads, size = q.shape
        if block_table is None:
            _check_shape("k", k, (k.shape[0], k.shape[1], size))
            _check_shape("v", v, tuple(k.shape))
        batch = _check_lengths(cu_seqlens_q, cu_seqlens_k)
        self._count_attention(
            q, k, v, sequence_lengths(cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k), is_causal
        )
        kept = (batch, heads, _round_up(max_seqlen_q, _BLOCK_ROWS), _round_up(max_seqlen_k, _BLOCK_ROWS))
        return self._allocate_forward_outputs(
            q, out, (heads, total_q), kept if return_softmax and p_dropout > 0 else (0,)
        )

    def bwd(
        self,
        dout: torch.Tensor,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        out: torch.Tensor,
        softmax_lse: torch.Tensor,
        dq: torch.Tensor | None,
        dk: torch.Tensor | None,
        dv: torch.Tensor | None,
        alibi_slopes: torch.Tensor | None,
        p_dropout: float,
        softmax_scale: float,
        is_causal: bool,
        window_size_left: int,
        window_size_right: int,
        softcap: float,
        deterministic: bool,
        generator: Any = None,
        rng_state: torch.Tensor | None = None,
    ) -> list[torch.Tensor]:
        """``mha_bwd``: [dq, dk, dv, softmax_d]."""
        self._check_inputs(q, k, v, softcap, p_dropout)
        batch, length, heads, size = q.shape
        rows = _round_up(length, _BLOCK_ROWS)
        self._count_attention(q, k, v, [(length, k.shape[1])] * batch, is_causal, backward=True)
        expanded = (batch, k.shape[1], heads, size)
        accumulated = (batch, rows, heads, _rounded_head_dim(size))
        return self._allocate_gradients(q, k, v, (dq, dk, dv), (batch, heads, rows), accumulated, expanded)

    def varlen_bwd(
        self,
        dout: torch.Tensor,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        out: torch.Tensor,
        softmax_lse: torch.Tensor,
        dq: torch.Tensor | None,
        dk: torch.Tensor | None,
        dv: torch.Tensor | None,
        cu_seqlens_q: torch.Tensor,
        cu_seqlens_k: torch.Tensor,
        alibi_slopes: torch.Tensor | None,
        max_seqlen_q: int,
        max_seqlen_k: int,
        p_dropout: float,
        softmax_scale: float,
        zero_tensors: bool,
        is_causal: bool,
        window_size_left: int,
        window_size_right: int,
        softcap: float,
        deterministic: bool,
        generator: Any = None,
        rng_state: torch.Tensor | None = None,
    ) -> list[torch.Tensor]:
        """``mha_varlen_bwd``."""
        self._check_inputs(q, k, v, softcap, p_dropout)
        total, heads, size = q.shape
        rows = total + _BLOCK_ROWS * _check_lengths(cu_seqlens_q, cu_seqlens_k)
        lengths = sequence_lengths(cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k)
        self._count_attention(q, k, v, lengths, is_causal, backward=True)
        expanded = (k.shape[0], heads, size)
        return self._allocate_gradients(
            q, k, v, (dq, dk, dv), (heads, rows), (rows, heads, _rounded_head_dim(size)), expanded
        )

    def fwd_kvcache(
        self, q: torch.Tensor, kcache: torch.Tensor, vcache: torch.Tensor, *others: Any, out: torch.Tensor | None = None
    ) -> list[torch.Tensor]:
        """``mha_fwd_kvcache``: [out, softmax_lse]; new keys and values are written to the caches."""
        self._check_inputs(q, kcache, vcache, 0.0, 0.0)
        self._count_attention(q, kcache, vcache, [(q.shape[1], kcache.shape[1])] * q.shape[0], False)
        self._written(kcache)
        self._written(vcache)
        return self._allocate_forward_outputs(q, out, (q.shape[0], q.shape[2], q.shape[1]), (0,))[:2]

    def _check_inputs(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, softcap: float, p_dropout: float
    ) -> None:
        self._assume(self._assumed)
        check(self._capability >= (8, 0), "FlashAttention only supports Ampere GPUs or newer.")
        check(q.dtype in (torch.float16, torch.bfloat16), "FlashAttention only support fp16 and bf16 data type")
        check(k.dtype == q.dtype, "query and key must have the same dtype")
        check(v.dtype == q.dtype, "query and value must have the same dtype")
        for name, tensor in (("q", q), ("k", k), ("v", v)):
            check(on_accelerator(tensor), f"{name} must be on CUDA")
            check(tensor.stride(-1) == 1, "Input tensor must have contiguous last dimension")
        heads, size = q.shape[-2:]
        check(size <= 256, "FlashAttention forward only supports head dimension at most 256")
        check(size % 8 == 0, "query, key, value, and out_ must have a head_size that is a multiple of 8")
        check(heads % k.shape[-2] == 0, "Number of heads in key/value must divide number of heads in query")
        check(not softcap or not p_dropout, "Softcapping does not support dropout for now")

    def _count_attention(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, lengths: Sequence[tuple[int, int]],
        is_causal: bool, backward: bool = False,
    ) -> None:  # fmt: skip
        """Count FLOPs and bytes: reads q, k and v, writes a tensor of q's size; backward twice as much."""
        flops = attention_flops(q.shape[-2], lengths, q.shape[-1], v.shape[-1], backward=backward)
        done = CAUSAL_SHARE if is_causal else 1.0
        self._computed(flops, *(q, k, v, q) * (1 + backward), kind="attention", done=done)

    def _allocate_forward_outputs(
        self, q: torch.Tensor, out: torch.Tensor | None, lse_shape: Sequence[int], p_shape: Sequence[int]
    ) -> list[torch.Tensor]:
        if out is None:
            out = torch.empty_like(q)
        lse = torch.empty(lse_shape, dtype=torch.float32, device=q.device)
        p = torch.empty(p_shape, dtype=q.dtype, device=q.device)
        state = torch.empty(2, dtype=torch.int64, device=q.device)
        return self._mark_written(out, lse, p, state)

    def _allocate_gradients(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        gradients: tuple[torch.Tensor | None, ...],
        softmax_shape: Sequence[int],
        accumulator_shape: Sequence[int],
        expanded_shape: Sequence[int],
    ) -> list[torch.Tensor]:
        dq, dk, dv = (
            torch.empty_like(of) if given is None else given for given, of in zip(gradients, (q, k, v), strict=True)
        )
        softmax_d = torch.empty(softmax_shape, dtype=torch.float32, device=q.device)
        transient = [torch.empty(accumulator_shape, dtype=torch.float32, device=q.device)]
        if k.shape[-2] != q.shape[-2]:  # grouped-query attention: gradients are computed per query head, then summed
            transient += [torch.empty(expanded_shape, dtype=q.dtype, device=q.device) for _ in range(2)]
        del transient
        return self._mark_written(dq, dk, dv, softmax_d)

    def _mark_written(self, *tensors: torch.Tensor) -> list[torch.Tensor]:
        for tensor in tensors:
            self._written(tensor)
        return list(tensors)


def _round_up(number: int, alignment: int) -> int:
    return -(-number // alignment) * alignment


def _rounded_head_dim(size: int) -> int:
    return _round_up(size, 32 if size <= 128 else 64)


def _check_shape(name: str, tensor: torch.Tensor, shape: tuple[int, ...]) -> None:
    check(tuple(tensor.shape) == shape, f"{name} must have shape ({', '.join(map(str, shape))})")


def _check_lengths(cu_seqlens_q: torch.Tensor, cu_seqlens_k: torch.Tensor) -> int:
    """Check the sequence bounds and return the number of sequences."""
    for name, tensor in (("cu_seqlens_q", cu_seqlens_q), ("cu_seqlens_k", cu_seqlens_k)):
        check(tensor.dtype == torch.int32, f"{name} must have dtype int32")
        check(on_accelerator(tensor), f"{name} must be on CUDA")
        check(tensor.is_contiguous(), f"{name} must be contiguous")
    return cu_seqlens_q.numel() - 1
