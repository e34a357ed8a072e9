"""Attention over dense and packed batches, differentiable; the kernels are ``flash_attn_2_cuda``'s."""

from __future__ import annotations

from typing import Any, NamedTuple

import flash_attn_2_cuda as kernels
import torch
import torch.nn.functional as F

from flash_attn._rest import module_getattr

__getattr__ = module_getattr(__name__)
flash_attn_gpu = kernels
USE_TRITON_ROCM = False
Window = tuple[int, int]
_WHOLE: Window = (-1, -1)


def _contiguous(tensor: Any) -> Any:
    return tensor.contiguous() if tensor is not None and tensor.stride(-1) != 1 else tensor


def _pad_head_dim(tensor: Any) -> Any:
    missing = -tensor.shape[-1] % 8
    return F.pad(tensor, [0, missing]) if missing else tensor


class _Settings(NamedTuple):
    """The options of one attention call, as the kernels take them."""

    lengths: Any
    """None, or (cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k) of a packed batch."""
    dropout_p: float
    scale: float | None
    causal: bool
    window: Window
    softcap: float
    alibi: Any
    deterministic: bool
    return_softmax: bool
    table: Any = None


def _split_qkv(tensors: Any) -> list[Any]:
    """Queries, keys and values: given apart, or some of them stacked in the third last dimension."""
    first, last = tensors[:-1], tensors[-1]
    return list(tensors) if len(tensors) == 3 else [*first, *last.unbind(-3)]


class _Attention(torch.autograd.Function):
    """Attention by flash-attn's kernels, forward and backward."""

    @staticmethod
    def forward(ctx: Any, settings: _Settings, saves_for_backward: bool, *tensors: Any) -> Any:
        size = tensors[0].shape[-1]
        q, k, v = (_contiguous(_pad_head_dim(part.detach())) for part in _split_qkv(tensors))
        numbers = (settings.dropout_p, size**-0.5 if settings.scale is None else settings.scale)
        masks = (settings.causal, *settings.window, settings.softcap)
        rest = (*masks, settings.return_softmax and settings.dropout_p > 0, None)
        if settings.lengths is None:
            out, lse, p, state = kernels.fwd(q, k, v, None, settings.alibi, *numbers, *rest)
        else:
            of_q, of_k, *longest = settings.lengths
            given = (q, k, v, None, of_q, of_k, None, None, settings.table, settings.alibi, *longest)
            out, lse, p, state = kernels.varlen_fwd(*given, *numbers, False, *rest)
        if saves_for_backward:
            lengths = settings.lengths or ()
            ctx.save_for_backward(q, k, v, out, lse, state, *lengths[:2])
            ctx.longest, ctx.count, ctx.alibi = lengths[2:], len(tensors), settings.alibi
            ctx.numbers, ctx.rest = numbers, (*masks, settings.deterministic, None)
        out = out[..., :size]
        return (out, lse, p) if settings.return_softmax else out

    @staticmethod
    def backward(ctx: Any, dout: Any, *others: Any) -> Any:
        q, k, v, out, lse, state, *lengths = ctx.saved_tensors
        size = dout.shape[-1]
        apart = [q, k, v][: ctx.count if ctx.count == 3 else ctx.count - 1]
        gradients = [torch.empty_like(tensor) for tensor in apart]
        if ctx.count < 3:
            *batch, heads, width = k.shape
            gradients.append(torch.empty((*batch, 4 - ctx.count, heads, width), dtype=k.dtype, device=k.device))
        given = (_contiguous(_pad_head_dim(dout)), q, k, v, out, lse, *_split_qkv(gradients))
        if lengths:
            kernels.varlen_bwd(*given, *lengths, ctx.alibi, *ctx.longest, *ctx.numbers, False, *ctx.rest, state)
        else:
            kernels.bwd(*given, ctx.alibi, *ctx.numbers, *ctx.rest, state)
        return (None, None, *(gradient[..., :size] for gradient in gradients))


def _apply_attention(tensors: tuple[Any, ...], *settings: Any) -> Any:
    """Apply the autograd function of attention with these settings."""
    saves_for_backward = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
    return _Attention.apply(_Settings(*settings), saves_for_backward, *tensors)  # type: ignore[no-untyped-call]


def flash_attn_func(
    q: Any, k: Any, v: Any, dropout_p: float = 0.0, softmax_scale: float | None = None, causal: bool = False,
    window_size: Window = _WHOLE, softcap: float = 0.0, alibi_slopes: Any = None, deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Any:  # fmt: skip
    """(batch, length, heads, size) each; keys and values may have fewer heads."""
    return _apply_attention((q, k, v), None, dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes,
                   deterministic, return_attn_probs)  # fmt: skip


def flash_attn_kvpacked_func(
    q: Any, kv: Any, dropout_p: float = 0.0, softmax_scale: float | None = None, causal: bool = False,
    window_size: Window = _WHOLE, softcap: float = 0.0, alibi_slopes: Any = None, deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Any:  # fmt: skip
    """Keys and values stacked in the third dimension."""
    return _apply_attention((q, kv), None, dropout_p, softmax_scale, causal, window_size, softcap,
                   alibi_slopes, deterministic, return_attn_probs)  # fmt: skip


def flash_attn_qkvpacked_func(
    qkv: Any, dropout_p: float = 0.0, softmax_scale: float | None = None, causal: bool = False,
    window_size: Window = _WHOLE, softcap: float = 0.0, alibi_slopes: Any = None, deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Any:  # fmt: skip
    """Queries, keys and values stacked in the third dimension."""
    return _apply_attention((qkv,), None, dropout_p, softmax_scale, causal, window_size,
                   softcap, alibi_slopes, deterministic, return_attn_probs)  # fmt: skip


def flash_attn_varlen_func(
    q: Any, k: Any, v: Any, cu_seqlens_q: Any, cu_seqlens_k: Any, max_seqlen_q: int, max_seqlen_k: int,
    dropout_p: float = 0.0, softmax_scale: float | None = None, causal: bool = False, window_size: Window = _WHOLE,
    softcap: float = 0.0, alibi_slopes: Any = None, deterministic: bool = False, return_attn_probs: bool = False,
    block_table: Any = None,
) -> Any:  # fmt: skip
    """(all tokens, heads, size) each; ``cu_seqlens`` say where each sequence begins."""
    lengths = (cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k)
    return _apply_attention((q, k, v), lengths, dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes,
                   deterministic, return_attn_probs, block_table)  # fmt: skip


def flash_attn_varlen_kvpacked_func(
    q: Any, kv: Any, cu_seqlens_q: Any, cu_seqlens_k: Any, max_seqlen_q: int, max_seqlen_k: int,
    dropout_p: float = 0.0, softmax_scale: float | None = None, causal: bool = False, window_size: Window = _WHOLE,
    softcap: float = 0.0, alibi_slopes: Any = None, deterministic: bool = False, return_attn_probs: bool = False,
) -> Any:  # fmt: skip
    """As :func:`flash_attn_varlen_func`, keys and values stacked in the second dimension."""
    lengths = (cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k)
    return _apply_attention((q, kv), lengths, dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes,
                   deterministic, return_attn_probs)  # fmt: skip


def flash_attn_varlen_qkvpacked_func(
    qkv: Any, cu_seqlens: Any, max_seqlen: int, dropout_p: float = 0.0, softmax_scale: float | None = None,
    causal: bool = False, window_size: Window = _WHOLE, softcap: float = 0.0, alibi_slopes: Any = None,
    deterministic: bool = False, return_attn_probs: bool = False,
) -> Any:  # fmt: skip
    """As :func:`flash_attn_varlen_func`, queries, keys and values stacked in the second dimension."""
    lengths = (cu_seqlens, cu_seqlens, max_seqlen, max_seqlen)
    return _apply_attention((qkv,), lengths, dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes,
                   deterministic, return_attn_probs)  # fmt: skip


def flash_attn_with_kvcache(
    q: Any, k_cache: Any, v_cache: Any, k: Any = None, v: Any = None, rotary_cos: Any = None, rotary_sin: Any = None,
    cache_seqlens: Any = None, cache_batch_idx: Any = None, cache_leftpad: Any = None, block_table: Any = None,
    softmax_scale: float | None = None, causal: bool = False, window_size: Window = _WHOLE, softcap: float = 0.0,
    rotary_interleaved: bool = True, alibi_slopes: Any = None, num_splits: int = 0, return_softmax_lse: bool = False,
) -> Any:  # fmt: skip
    """For generation: new keys and values go into the caches, which are attended to."""
    out, lse = kernels.fwd_kvcache(_contiguous(q), k_cache, v_cache, k, v)
    return (out, lse) if return_softmax_lse else out


def maybe_contiguous(x: Any) -> Any:
    """``x``, or a copy whose last dimension is contiguous."""
    return _contiguous(x)


def round_multiple(x: int, m: int) -> int:
    """The next multiple of ``m``."""
    return (x + m - 1) // m * m


def _flash_attn_forward(
    q: Any, k: Any, v: Any, dropout_p: float, softmax_scale: float, causal: bool, window_size_left: int,
    window_size_right: int, softcap: float, alibi_slopes: Any, return_softmax: bool,
) -> Any:  # fmt: skip
    """(out, logsumexp, probabilities, the random state) of the kernel; what attends over a ring of ranks calls it."""
    q, k, v = (_contiguous(tensor) for tensor in (q, k, v))
    masks = (causal, window_size_left, window_size_right, softcap)
    return kernels.fwd(q, k, v, None, alibi_slopes, dropout_p, softmax_scale, *masks, return_softmax, None)


def _flash_attn_varlen_forward(
    q: Any, k: Any, v: Any, cu_seqlens_q: Any, cu_seqlens_k: Any, max_seqlen_q: int, max_seqlen_k: int,
    dropout_p: float, softmax_scale: float, causal: bool, window_size_left: int = -1, window_size_right: int = -1,
    softcap: float = 0.0, alibi_slopes: Any = None, return_softmax: bool = False, block_table: Any = None,
    leftpad_k: Any = None, seqused_k: Any = None, zero_tensors: bool = False,
) -> Any:  # fmt: skip
    """As :func:`_flash_attn_forward`, of a packed batch."""
    q, k, v = (_contiguous(tensor) for tensor in (q, k, v))
    given = (q, k, v, None, cu_seqlens_q, cu_seqlens_k, seqused_k, leftpad_k, block_table, alibi_slopes)
    masks = (causal, window_size_left, window_size_right, softcap)
    numbers = (max_seqlen_q, max_seqlen_k, dropout_p, softmax_scale, zero_tensors)
    return kernels.varlen_fwd(*given, *numbers, *masks, return_softmax, None)


def _flash_attn_backward(
    dout: Any, q: Any, k: Any, v: Any, out: Any, softmax_lse: Any, dq: Any, dk: Any, dv: Any, dropout_p: float,
    softmax_scale: float, causal: bool, window_size_left: int, window_size_right: int, softcap: float,
    alibi_slopes: Any, deterministic: bool, rng_state: Any = None,
) -> Any:  # fmt: skip
    """Writes the gradients, which it makes where they are None."""
    dq, dk, dv = (torch.empty_like(x) if grad is None else grad for grad, x in ((dq, q), (dk, k), (dv, v)))
    masks = (causal, window_size_left, window_size_right, softcap, deterministic, None)
    given = (_contiguous(dout), _contiguous(q), _contiguous(k), _contiguous(v), _contiguous(out), softmax_lse)
    return kernels.bwd(*given, dq, dk, dv, alibi_slopes, dropout_p, softmax_scale, *masks, rng_state)[-1]


def _flash_attn_varlen_backward(
    dout: Any, q: Any, k: Any, v: Any, out: Any, softmax_lse: Any, dq: Any, dk: Any, dv: Any, cu_seqlens_q: Any,
    cu_seqlens_k: Any, max_seqlen_q: int, max_seqlen_k: int, dropout_p: float, softmax_scale: float, causal: bool,
    window_size_left: int, window_size_right: int, softcap: float, alibi_slopes: Any, deterministic: bool,
    rng_state: Any = None, zero_tensors: bool = False,
) -> Any:  # fmt: skip
    """As :func:`_flash_attn_backward`, of a packed batch."""
    dq, dk, dv = (torch.empty_like(x) if grad is None else grad for grad, x in ((dq, q), (dk, k), (dv, v)))
    masks = (causal, window_size_left, window_size_right, softcap, deterministic, None)
    given = (_contiguous(dout), _contiguous(q), _contiguous(k), _contiguous(v), _contiguous(out), softmax_lse)
    lengths = (cu_seqlens_q, cu_seqlens_k, alibi_slopes, max_seqlen_q, max_seqlen_k)
    numbers = (dropout_p, softmax_scale, zero_tensors)
    return kernels.varlen_bwd(*given, dq, dk, dv, *lengths, *numbers, *masks, rng_state)[-1]
