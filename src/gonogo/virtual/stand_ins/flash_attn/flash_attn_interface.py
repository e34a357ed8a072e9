"""Attention over dense and packed batches, differentiable; the kernels are ``flash_attn_2_cuda``'s."""

from __future__ import annotations

from typing import Any

import flash_attn_2_cuda as kernels
import torch
import torch.nn.functional as F

Window = tuple[int, int]
_WHOLE: Window = (-1, -1)


def _contiguous(tensor: Any) -> Any:
    return tensor.contiguous() if tensor is not None and tensor.stride(-1) != 1 else tensor


def _padded(tensor: Any) -> Any:
    missing = -tensor.shape[-1] % 8
    return F.pad(tensor, [0, missing]) if missing else tensor


class _Attention(torch.autograd.Function):
    """``lengths``: None, or (cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k) of a packed batch."""

    @staticmethod
    def forward(
        ctx: Any, q: Any, k: Any, v: Any, lengths: Any, dropout_p: float, scale: float | None, causal: bool,
        window: Window, softcap: float, alibi: Any, deterministic: bool, return_softmax: bool, table: Any,
        keeps: bool,
    ) -> Any:  # fmt: skip
        size = q.shape[-1]
        scale = size**-0.5 if scale is None else scale
        q, k, v = (_contiguous(_padded(tensor)) for tensor in (q, k, v))
        settings = (dropout_p, scale)
        rest = (causal, *window, softcap, return_softmax and dropout_p > 0, None)
        if lengths is None:
            out, lse, p, state = kernels.fwd(q, k, v, None, alibi, *settings, *rest)
        else:
            of_q, of_k, longest_q, longest_k = lengths
            out, lse, p, state = kernels.varlen_fwd(
                q, k, v, None, of_q, of_k, None, None, table, alibi, longest_q, longest_k, *settings, False, *rest
            )
        if keeps:
            ctx.save_for_backward(q, k, v, out, lse, state, *(lengths[:2] if lengths else ()))
            ctx.longest = lengths[2:] if lengths else None
            ctx.settings, ctx.rest, ctx.alibi = settings, (causal, *window, softcap, deterministic, None), alibi
        out = out[..., :size]
        return (out, lse, p) if return_softmax else out

    @staticmethod
    def backward(ctx: Any, dout: Any, *others: Any) -> Any:
        q, k, v, out, lse, state, *lengths = ctx.saved_tensors
        size = dout.shape[-1]
        dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
        given = (_contiguous(_padded(dout)), q, k, v, out, lse, dq, dk, dv)
        if lengths:
            kernels.varlen_bwd(*given, *lengths, ctx.alibi, *ctx.longest, *ctx.settings, False, *ctx.rest, state)
        else:
            kernels.bwd(*given, ctx.alibi, *ctx.settings, *ctx.rest, state)
        return (dq[..., :size], dk[..., :size], dv[..., :size], *[None] * 11)


def _attend(
    q: Any, k: Any, v: Any, lengths: Any, dropout_p: float, scale: float | None, causal: bool, window: Window,
    softcap: float, alibi: Any, deterministic: bool, return_softmax: bool, table: Any = None,
) -> Any:  # fmt: skip
    keeps = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (q, k, v))
    return _Attention.apply(  # type: ignore[no-untyped-call]
        q, k, v, lengths, dropout_p, scale, causal, window, softcap, alibi, deterministic, return_softmax, table, keeps
    )


def flash_attn_func(
    q: Any, k: Any, v: Any, dropout_p: float = 0.0, softmax_scale: float | None = None, causal: bool = False,
    window_size: Window = _WHOLE, softcap: float = 0.0, alibi_slopes: Any = None, deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Any:  # fmt: skip
    """(batch, length, heads, size) each; keys and values may have fewer heads."""
    return _attend(q, k, v, None, dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes,
                   deterministic, return_attn_probs)  # fmt: skip


def flash_attn_kvpacked_func(
    q: Any, kv: Any, dropout_p: float = 0.0, softmax_scale: float | None = None, causal: bool = False,
    window_size: Window = _WHOLE, softcap: float = 0.0, alibi_slopes: Any = None, deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Any:  # fmt: skip
    """Keys and values stacked in the third dimension."""
    return _attend(q, kv[:, :, 0], kv[:, :, 1], None, dropout_p, softmax_scale, causal, window_size, softcap,
                   alibi_slopes, deterministic, return_attn_probs)  # fmt: skip


def flash_attn_qkvpacked_func(
    qkv: Any, dropout_p: float = 0.0, softmax_scale: float | None = None, causal: bool = False,
    window_size: Window = _WHOLE, softcap: float = 0.0, alibi_slopes: Any = None, deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Any:  # fmt: skip
    """Queries, keys and values stacked in the third dimension."""
    return _attend(qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2], None, dropout_p, softmax_scale, causal, window_size,
                   softcap, alibi_slopes, deterministic, return_attn_probs)  # fmt: skip


def flash_attn_varlen_func(
    q: Any, k: Any, v: Any, cu_seqlens_q: Any, cu_seqlens_k: Any, max_seqlen_q: int, max_seqlen_k: int,
    dropout_p: float = 0.0, softmax_scale: float | None = None, causal: bool = False, window_size: Window = _WHOLE,
    softcap: float = 0.0, alibi_slopes: Any = None, deterministic: bool = False, return_attn_probs: bool = False,
    block_table: Any = None,
) -> Any:  # fmt: skip
    """(all tokens, heads, size) each; ``cu_seqlens`` say where each sequence begins."""
    lengths = (cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k)
    return _attend(
        q,
        k,
        v,
        lengths,
        dropout_p,
        softmax_scale,
        causal,
        window_size,
        softcap,
        alibi_slopes,
        deterministic,
        return_attn_probs,
        block_table,
    )


def flash_attn_varlen_kvpacked_func(
    q: Any, kv: Any, cu_seqlens_q: Any, cu_seqlens_k: Any, max_seqlen_q: int, max_seqlen_k: int,
    dropout_p: float = 0.0, softmax_scale: float | None = None, causal: bool = False, window_size: Window = _WHOLE,
    softcap: float = 0.0, alibi_slopes: Any = None, deterministic: bool = False, return_attn_probs: bool = False,
) -> Any:  # fmt: skip
    """As :func:`flash_attn_varlen_func`, keys and values stacked in the second dimension."""
    return flash_attn_varlen_func(q, kv[:, 0], kv[:, 1], cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k,
                                  dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, deterministic,
                                  return_attn_probs)  # fmt: skip


def flash_attn_varlen_qkvpacked_func(
    qkv: Any, cu_seqlens: Any, max_seqlen: int, dropout_p: float = 0.0, softmax_scale: float | None = None,
    causal: bool = False, window_size: Window = _WHOLE, softcap: float = 0.0, alibi_slopes: Any = None,
    deterministic: bool = False, return_attn_probs: bool = False,
) -> Any:  # fmt: skip
    """As :func:`flash_attn_varlen_func`, queries, keys and values stacked in the second dimension."""
    return flash_attn_varlen_func(qkv[:, 0], qkv[:, 1], qkv[:, 2], cu_seqlens, cu_seqlens, max_seqlen, max_seqlen,
                                  dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, deterministic,
                                  return_attn_probs)  # fmt: skip


def flash_attn_with_kvcache(
    q: Any, k_cache: Any, v_cache: Any, k: Any = None, v: Any = None, rotary_cos: Any = None, rotary_sin: Any = None,
    cache_seqlens: Any = None, cache_batch_idx: Any = None, cache_leftpad: Any = None, block_table: Any = None,
    softmax_scale: float | None = None, causal: bool = False, window_size: Window = _WHOLE, softcap: float = 0.0,
    rotary_interleaved: bool = True, alibi_slopes: Any = None, num_splits: int = 0, return_softmax_lse: bool = False,
) -> Any:  # fmt: skip
    """For generation: new keys and values go into the caches, which are attended to."""
    out, lse = kernels.fwd_kvcache(_contiguous(q), k_cache, v_cache, k, v)
    return (out, lse) if return_softmax_lse else out
