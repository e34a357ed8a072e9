"""Batch normalization across ranks (``nn.SyncBatchNorm``), whose operators only have CUDA kernels.

Shapes and dtypes follow torch's ``aten/src/ATen/native/cuda/Normalization.cu``: statistics have one value per
channel, in float32 for 16-bit inputs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from gonogo.virtual import private

_Statistics = tuple[torch.Tensor, torch.Tensor]


def install() -> Callable[[], None]:
    """Register meta functions for operators that have none. Returns the undo."""
    library: Any = torch.library.Library("aten", "IMPL", "Meta")  # type: ignore[no-untyped-call]
    has_rule: Any = vars(torch._C)["_dispatch_has_kernel_for_dispatch_key"]
    for name, rule in _RULES.items():
        if not has_rule(f"aten::{name}", "Meta"):
            library.impl(name, rule)
    return functools.partial(private.unregister_library, library)


def _empty_statistics(tensor: torch.Tensor, *others: Any) -> _Statistics:
    dtype = torch.promote_types(tensor.dtype, torch.float32)
    mean = tensor.new_empty((tensor.shape[1],), dtype=dtype)
    return mean, torch.empty_like(mean)


def _empty_like(tensor: torch.Tensor, *others: Any) -> torch.Tensor:
    return torch.empty_like(tensor)


def _empty_gradient(grad: torch.Tensor, tensor: torch.Tensor, *others: Any) -> torch.Tensor:
    return torch.empty_like(tensor)


def _batch_norm_reductions(
    grad: torch.Tensor, tensor: torch.Tensor, mean: torch.Tensor, invstd: torch.Tensor, weight: torch.Tensor | None,
    input_g: bool, weight_g: bool, bias_g: bool,
) -> tuple[torch.Tensor | None, ...]:  # fmt: skip
    """Sums of the gradient and of its product with the input, and the weight and bias gradients; None if not
    requested."""
    dtype = weight.dtype if weight is not None else mean.dtype
    parameter = tensor.new_empty((tensor.shape[1],), dtype=dtype)
    return (
        torch.empty_like(mean) if input_g else None,
        torch.empty_like(mean) if input_g else None,
        parameter if weight_g else None,
        torch.empty_like(parameter) if bias_g else None,
    )


_RULES = {
    "batch_norm_stats": _empty_statistics,
    "batch_norm_update_stats": _empty_statistics,
    "batch_norm_gather_stats": _empty_statistics,
    "batch_norm_gather_stats_with_counts": _empty_statistics,
    "batch_norm_elemt": _empty_like,
    "batch_norm_backward_reduce": _batch_norm_reductions,
    "batch_norm_backward_elemt": _empty_gradient,
}
