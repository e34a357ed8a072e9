"""``memory_efficient_attention`` (xformers/ops/fmha/__init__.py): checked operands, flash-attn's kernel or CUTLASS's.

Half precision without a tensor of biases goes to the flash kernels; else CUTLASS's keep the output and the
log-sum-exp, and need a delta of its size in the backward.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from xformers import _C_flashattention as kernels
from xformers._rest import missing_name_getattr
from xformers.ops.fmha import attn_bias
from xformers.ops.fmha.attn_bias import AttentionBias, BlockDiagonalMask, LowerTriangularMask

__all__ = ["AttentionBias", "BlockDiagonalMask", "LowerTriangularMask", "attn_bias", "cutlass", "flash",
           "memory_efficient_attention", "memory_efficient_attention_forward"]  # fmt: skip
__getattr__ = missing_name_getattr(
    __name__,
    (
        *("AttentionOp", "AttentionBwOpBase", "AttentionFwOpBase", "Inputs", "memory_efficient_attention_partial"),
        *("memory_efficient_attention_backward", "memory_efficient_attention_forward_requires_grad"),
        *("merge_attentions", "MemoryEfficientAttentionCkOp", "MemoryEfficientAttentionSplitKCkOp"),
        *("MemoryEfficientAttentionCutlassFwdFlashBwOp", "MemoryEfficientAttentionTritonFwdFlashBwOp", "ALL_FW_OPS"),
    ),
)
_HALF = (torch.float16, torch.bfloat16)
_MAX_HEAD_DIM = 256
"""What the flash kernels take."""


class _Operator:
    """An attention kernel by name, which callers may choose with ``op=``."""

    def __init__(self, name: str) -> None:
        self.NAME = name

    def __repr__(self) -> str:
        return self.NAME


class cutlass:
    """CUTLASS's kernels."""

    FwOp, BwOp = _Operator("cutlassF"), _Operator("cutlassB")


class flash:
    """flash-attn's kernels."""

    FwOp, BwOp = _Operator("fa2F"), _Operator("fa2B")


MemoryEfficientAttentionCutlassOp = (cutlass.FwOp, cutlass.BwOp)
MemoryEfficientAttentionFlashAttentionOp = (flash.FwOp, flash.BwOp)


def memory_efficient_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attn_bias: Any = None, p: float = 0.0,
    scale: float | None = None, *, op: Any = None, output_dtype: Any = None,
) -> torch.Tensor:  # fmt: skip
    """(batch, length, heads, size) each, or without heads, or with groups of heads before them."""
    shape = (*query.shape[:-1], value.shape[-1])
    _check_inputs(query, key, value, attn_bias)
    q, k, v = (_with_heads(tensor) for tensor in (query, key, value))
    if not math.isfinite(p) or not 0 <= p < 1:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
    keeps = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (query, key, value))
    chosen = op[0] if isinstance(op, tuple) else op
    given = (attn_bias, p, scale, keeps, chosen is not cutlass.FwOp)
    out: torch.Tensor = _Attention.apply(given, q, k, v)  # type: ignore[no-untyped-call]
    out = out.reshape(shape)
    return out if output_dtype is None else out.to(output_dtype)


def memory_efficient_attention_forward(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attn_bias: Any = None, p: float = 0.0,
    scale: float | None = None, *, op: Any = None, output_dtype: Any = None,
) -> torch.Tensor:  # fmt: skip
    """Attention without a backward."""
    with torch.no_grad():
        return memory_efficient_attention(query, key, value, attn_bias, p, scale, op=op, output_dtype=output_dtype)


def _with_heads(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.ndim == 3:
        return tensor.unsqueeze(2)
    return tensor.flatten(2, 3) if tensor.ndim == 5 else tensor


def _check_inputs(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, bias: Any) -> None:
    """Raise the errors of xFormers' ``Inputs.validate_inputs`` and of its dispatcher."""
    operands = {"query": query, "key": key, "value": value}
    shapes = "".join(f"\n  {name}.shape: {tensor.shape}" for name, tensor in operands.items())
    if query.ndim not in (3, 4, 5) or any(tensor.ndim != query.ndim for tensor in operands.values()):
        raise ValueError(
            f"Invalid shape for query: {query.shape}. Expected shape [batch, seqlen, head_groups, num_heads_per_group, "
            f"K], [batch, seqlen, num_heads, K], or [batch, seqlen, K].{shapes}"
        )
    if any(tensor.device != query.device for tensor in operands.values()):
        raise ValueError("Query/Key/Value should all be on the same device" + _format_attribute(operands, "device"))
    if any(tensor.dtype != query.dtype for tensor in operands.values()):
        raise ValueError(
            "Query/Key/Value should either all have the same dtype, or (in the quantized case) Key/Value should have "
            "dtype torch.int32" + _format_attribute(operands, "dtype")
        )
    heads = query.shape[2:-1]
    alike = key.shape[:2] == value.shape[:2] and key.shape[2:-1] == heads == value.shape[2:-1]
    if not alike or query.shape[0] != key.shape[0] or query.shape[-1] != key.shape[-1]:
        raise ValueError(
            f"Incompatible shapes for attention inputs:{shapes}\nHINT: We don't support broadcasting, please use "
            "`expand` yourself before calling `memory_efficient_attention` if you need to"
        )
    if isinstance(bias, BlockDiagonalMask) and query.shape[0] != 1:
        raise ValueError(f"Expected batch_size=1 when using block-diagonal bias\n  query.shape: {query.shape}")
    if isinstance(bias, torch.Tensor) and bias.device != query.device:
        raise ValueError(f"attn_bias (device: {bias.device}) should be on the same device as query ({query.device})")
    if query.device.type != "cuda" or query.dtype not in (*_HALF, torch.float32):
        raise NotImplementedError(
            "No operator found for `memory_efficient_attention_forward` with inputs:\n"
            f"     query       : shape={tuple(query.shape)} ({query.dtype})"
        )


def _format_attribute(operands: dict[str, torch.Tensor], what: str) -> str:
    return "".join(f"\n  {name}.{what}: {getattr(tensor, what)}" for name, tensor in operands.items())


class _Attention(torch.autograd.Function):
    """Attention of queries, keys and values that have equally many heads."""

    @staticmethod
    def forward(ctx: Any, given: Any, *operands: torch.Tensor) -> Any:
        bias, p, scale, keeps, may_be_flash = given
        q, k, v = (_contiguous(tensor.detach()) for tensor in operands)
        size = q.shape[-1]
        plain = bias is None or (isinstance(bias, AttentionBias) and not bias.has_tensor)
        fits = size <= _MAX_HEAD_DIM and size % 8 == 0 and v.shape[-1] == size
        by_flash = may_be_flash and plain and fits and q.dtype in _HALF
        lengths = bias.lengths(q.device) if isinstance(bias, BlockDiagonalMask) else None
        causal, window = (bias.causal, bias.window) if isinstance(bias, AttentionBias) else (False, (-1, -1))
        numbers, masks = (p, size**-0.5 if scale is None else scale), (causal, *window, 0.0)
        if by_flash and lengths is not None:
            q, k, v = (tensor.squeeze(0) for tensor in (q, k, v))
            of_q, of_k, *longest = lengths
            packed = (q, k, v, None, of_q, of_k, None, None, None, None, *longest)
            out, lse, _, state = kernels.varlen_fwd(*packed, *numbers, False, *masks, False, None)
            kept: tuple[Any, ...] = (state, of_q, of_k)
            ctx.longest = longest
        elif by_flash:
            out, lse, _, state = kernels.fwd(q, k, v, None, None, *numbers, *masks, False, None)
            kept, ctx.longest = (state,), None
        else:
            out = torch.empty((*q.shape[:-1], v.shape[-1]), dtype=q.dtype, device=q.device)
            lse = torch.empty((q.shape[0], q.shape[2], q.shape[1]), dtype=torch.float32, device=q.device)
            tensor = bias if isinstance(bias, torch.Tensor) else getattr(bias, "bias", None)
            kept, ctx.longest = (tensor,) if tensor is not None else (), None
        if keeps:
            ctx.by_flash, ctx.numbers, ctx.masks = by_flash, numbers, masks
            ctx.save_for_backward(q, k, v, out, lse, *kept)
        return out

    @staticmethod
    def backward(ctx: Any, dout: torch.Tensor) -> Any:
        q, k, v, out, lse, *kept = ctx.saved_tensors
        dout = _contiguous(dout)
        gradients = tuple(torch.empty_like(tensor) for tensor in (q, k, v))
        operands = (dout.reshape(out.shape), q, k, v, out, lse, *gradients)
        if not ctx.by_flash:
            torch.empty_like(lse)  # delta
        elif ctx.longest is None:
            kernels.bwd(*operands, None, *ctx.numbers, *ctx.masks, False, None, kept[0])
        else:
            state, of_q, of_k = kept
            rest = (*ctx.numbers, False, *ctx.masks, False, None, state)
            kernels.varlen_bwd(*operands, of_q, of_k, None, *ctx.longest, *rest)
            gradients = tuple(gradient.unsqueeze(0) for gradient in gradients)
        return (None, *gradients)


def _contiguous(tensor: torch.Tensor) -> torch.Tensor:
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()
