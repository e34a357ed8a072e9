"""Norms with the sum of the residual, differentiable: the kernel keeps the sum and one number a row."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from flash_attn._rest import module_getattr

__getattr__ = module_getattr(__name__)


class _Norm(torch.autograd.Function):
    """LayerNorm or RMSNorm, optionally with a residual added first."""

    @staticmethod
    def forward(
        ctx: Any, x: Any, weight: Any, bias: Any, residual: Any, prenorm: bool, fp32: bool, out_dtype: Any
    ) -> Any:
        if residual is not None:
            assert residual.shape == x.shape
        kind = torch.float32 if fp32 else residual.dtype if residual is not None else x.dtype
        out = torch.empty_like(x, dtype=out_dtype or x.dtype)
        summed = torch.empty_like(x, dtype=kind) if residual is not None or kind != x.dtype else x
        rows = x.numel() // x.shape[-1]
        ctx.save_for_backward(summed, weight, bias, torch.empty(rows, dtype=torch.float32, device=x.device))
        ctx.kinds = (x.dtype, residual.dtype if residual is not None else None)
        return (out, summed if summed is not x else x.view_as(x)) if prenorm else out

    @staticmethod
    def backward(ctx: Any, dy: Any, *others: Any) -> Any:
        summed, weight, bias, _ = ctx.saved_tensors
        kind, of_residual = ctx.kinds
        dx = torch.empty_like(summed, dtype=kind)
        dweight = torch.empty_like(weight) if weight is not None else None
        dbias = torch.empty_like(bias) if bias is not None else None
        same = of_residual in (None, kind)
        dresidual = None if of_residual is None else dx if same else torch.empty_like(summed, dtype=of_residual)
        return dx, dweight, dbias, dresidual, None, None, None


def layer_norm_fn(
    x: Any, weight: Any, bias: Any, residual: Any = None, x1: Any = None, weight1: Any = None, bias1: Any = None,
    eps: float = 1e-6, dropout_p: float = 0.0, rowscale: Any = None, prenorm: bool = False,
    residual_in_fp32: bool = False, zero_centered_weight: bool = False, is_rms_norm: bool = False,
    return_dropout_mask: bool = False, out_dtype: Any = None, out: Any = None, residual_out: Any = None,
) -> Any:  # fmt: skip
    """The norm of ``x``, or of its sum with the residual; with ``prenorm`` the sum too."""
    if any(part is not None for part in (x1, weight1, rowscale, out, residual_out)) or return_dropout_mask:
        return module_getattr(__name__)("LayerNormFn")()
    return _Norm.apply(  # type: ignore[no-untyped-call]
        x, weight, bias, residual, prenorm, residual_in_fp32, out_dtype
    )


def rms_norm_fn(
    x: Any, weight: Any, bias: Any, residual: Any = None, x1: Any = None, weight1: Any = None, bias1: Any = None,
    eps: float = 1e-6, dropout_p: float = 0.0, rowscale: Any = None, prenorm: bool = False,
    residual_in_fp32: bool = False, zero_centered_weight: bool = False, return_dropout_mask: bool = False,
    out_dtype: Any = None, out: Any = None, residual_out: Any = None,
) -> Any:  # fmt: skip
    """As :func:`layer_norm_fn`, without the mean."""
    return layer_norm_fn(x, weight, bias, residual, x1, weight1, bias1, eps, dropout_p, rowscale, prenorm,
                         residual_in_fp32, zero_centered_weight, True, return_dropout_mask, out_dtype, out,
                         residual_out)  # fmt: skip


class RMSNorm(nn.Module):
    """RMSNorm as a module, optionally with dropout and a zero-centered weight."""

    def __init__(
        self, hidden_size: int, eps: float = 1e-5, dropout_p: float = 0.0, zero_centered_weight: bool = False,
        device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.eps, self.zero_centered_weight = eps, zero_centered_weight
        self.drop = nn.Dropout(dropout_p) if dropout_p > 0.0 else None
        self.weight = nn.Parameter(torch.empty(hidden_size, device=device, dtype=dtype))
        self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set the weight to ones, or to zeros if it is zero-centered."""
        (nn.init.zeros_ if self.zero_centered_weight else nn.init.ones_)(self.weight)

    def forward(self, x: Any, residual: Any = None, prenorm: bool = False, residual_in_fp32: bool = False) -> Any:
        """See :func:`rms_norm_fn`."""
        return rms_norm_fn(
            x, self.weight, self.bias, residual, eps=self.eps, prenorm=prenorm, residual_in_fp32=residual_in_fp32
        )
