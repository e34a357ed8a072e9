"""``FusedLayerNormAffineFunction`` (apex/normalization/fused_layer_norm.py)."""

from __future__ import annotations

from typing import Any

import fused_layer_norm_cuda
import torch


class FusedLayerNormAffineFunction(torch.autograd.Function):
    """Saves the input with its statistics for the backward, or the output if ``memory_efficient``."""

    @staticmethod
    def forward(
        ctx: Any, input: Any, weight: Any, bias: Any, normalized_shape: Any, eps: float, memory_efficient: bool = False
    ) -> Any:
        """The normalized input, as Apex's kernel allocates it."""
        input, weight, bias = input.contiguous(), weight.contiguous(), bias.contiguous()
        out, mean, deviation = fused_layer_norm_cuda.forward_affine(input, normalized_shape, weight, bias, eps)
        ctx.settings = (normalized_shape, eps, memory_efficient)
        if memory_efficient:
            ctx.save_for_backward(out, weight, bias, None, deviation)
        else:
            ctx.save_for_backward(input, weight, bias, mean, deviation)
        return out

    @staticmethod
    def backward(ctx: Any, grad_output: Any) -> Any:
        """Gradients of input, weight and bias."""
        kept, weight, bias, mean, deviation = ctx.saved_tensors
        shape, eps, memory_efficient = ctx.settings
        gradients = fused_layer_norm_cuda.backward_affine(
            grad_output.contiguous(), mean, deviation, kept, shape, weight, bias, eps, memory_efficient
        )
        return (*gradients, None, None, None)
