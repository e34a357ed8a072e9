"""Normalization whose operators only have CUDA kernels: across ranks (``nn.SyncBatchNorm``), and RMSNorm as one kernel.

Shapes and dtypes follow torch's ``aten/src/ATen/native/cuda/Normalization.cu`` and ``layer_norm_kernel.cu``: statistics
have one value per channel or row, in float32 for 16-bit inputs. Without a kernel of its own RMSNorm is composed of
other operators, as on a CPU, and keeps what each of those needs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from gonogo.virtual import private
from gonogo.virtual.mode import HANDLERS, VirtualMode
from gonogo.virtual.tensor import Spec

_Statistics = tuple[torch.Tensor, torch.Tensor]


def install() -> Callable[[], None]:
    """Register meta functions for operators that have none. Returns the undo."""
    library: Any = torch.library.Library("aten", "IMPL", "Meta")  # type: ignore[no-untyped-call]
    has_rule: Any = vars(torch._C)["_dispatch_has_kernel_for_dispatch_key"]
    for name, rule in _RULES.items():
        if hasattr(torch.ops.aten, name) and not has_rule(f"aten::{name}", "Meta"):
            private.register_meta(library, name, rule)
    return functools.partial(private.unregister_library, library)


def _empty_statistics(tensor: torch.Tensor, *others: Any) -> _Statistics:
    dtype = torch.promote_types(tensor.dtype, torch.float32)
    mean = tensor.new_empty((tensor.shape[1],), dtype=dtype)
    return mean, torch.empty_like(mean)


def _rms_norm(tensor: torch.Tensor, shape: list[int], *others: Any) -> _Statistics:
    kept = (*tensor.shape[: tensor.dim() - len(shape)], *(1 for _ in shape))
    dtype = torch.promote_types(tensor.dtype, torch.float32)
    return torch.empty_like(tensor, memory_format=torch.contiguous_format), tensor.new_empty(kept, dtype=dtype)


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
    "_fused_rms_norm": _rms_norm,
    "batch_norm_stats": _empty_statistics,
    "batch_norm_update_stats": _empty_statistics,
    "batch_norm_gather_stats": _empty_statistics,
    "batch_norm_gather_stats_with_counts": _empty_statistics,
    "batch_norm_elemt": _empty_like,
    "batch_norm_backward_reduce": _batch_norm_reductions,
    "batch_norm_backward_elemt": _empty_gradient,
}


def _backward_of_rows(mode: VirtualMode, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """The backward of LayerNorm and RMSNorm, whose CUDA kernels need a contiguous gradient and input."""
    on_cuda = [one for one in args[:2] if one.device.type == "cuda"]
    sizes = [one.numel() * one.element_size() for one in on_cuda if not one.is_contiguous()]
    copies = [mode._new_tensor(Spec.of(torch.Size((size,)), (1,), torch.uint8, args[0].device), size) for size in sizes]
    result = mode.run(mode.operator(func), args, kwargs)
    del copies
    return result


for _name in ("native_layer_norm_backward", "_fused_rms_norm_backward"):
    if hasattr(torch.ops.aten, _name):
        HANDLERS[getattr(torch.ops.aten, _name).default] = _backward_of_rows
