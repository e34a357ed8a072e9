"""``FastLayerNormFN``, which Megatron-Core calls its persistent layer norm (apex/contrib/layer_norm/layer_norm.py)."""

from __future__ import annotations

from typing import Any

import fast_layer_norm
import torch


class FastLayerNormFN(torch.autograd.Function):
    """Saves the input with its statistics for the backward, or the output if ``memory_efficient``."""

    @staticmethod
    def forward(ctx: Any, x: Any, gamma: Any, beta: Any, epsilon: float, memory_efficient: bool = False) -> Any:
        """The normalized input, as Apex's kernel allocates it."""
        x, gamma, beta = x.contiguous(), gamma.contiguous(), beta.contiguous()
        rows = x.view((-1, gamma.numel()))
        out, mean, deviation = fast_layer_norm.ln_fwd(rows, gamma, beta, epsilon)
        ctx.memory_efficient = memory_efficient
        if memory_efficient:
            ctx.save_for_backward(out, gamma, None, deviation, beta)
        else:
            ctx.save_for_backward(rows, gamma, mean, deviation, None)
        return out.view(x.shape)

    @staticmethod
    def backward(ctx: Any, dy: Any) -> Any:
        """Gradients of input, weight and bias."""
        dy = dy.contiguous()
        kept, gamma, mean, deviation, beta = ctx.saved_tensors
        gradients = fast_layer_norm.ln_bwd(
            dy.view(kept.shape), kept, mean, deviation, gamma, beta, ctx.memory_efficient
        )
        return (gradients[0].view(dy.shape), *gradients[1:3], None, None)
