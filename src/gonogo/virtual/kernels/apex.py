"""Stand-ins for what Megatron-Core uses of Apex: softmax, layer norms, fused gradient accumulation.

The compiled modules follow csrc/ and apex/contrib/csrc/ of NVIDIA/apex. A softmax has the input's shape and dtype;
its backward overwrites the incoming gradient and returns it. A layer norm returns statistics in float32, a pair per
row. A weight's gradient is accumulated into ``main_grad`` by the matmul itself. The Python code around the layer
norms is in ``stand_ins/with_apex``, since Apex is on no package index, while Megatron's own images include it. Any
other program that can't do without Apex finds its mixed precision, data parallelism and optimizers in
``stand_ins/with_apex_training``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from gonogo.finding import Text, translated
from gonogo.virtual.kernels.checks import check, on_accelerator
from gonogo.virtual.kernels.flops import Computed, ignore_flops, product_flops
from gonogo.virtual.kernels.needed_import import is_needed_import
from gonogo.virtual.patching.patches import Patches

_SOFTMAX_MODULES = ("scaled_upper_triang_masked_softmax_cuda", "scaled_masked_softmax_cuda", "scaled_softmax_cuda")
_SOFTMAX_ASSUMPTION = translated("Apex's softmax kernels are installed on the machine")
_NORM_ASSUMPTION = translated("Apex's layer norms are installed on the machine")
_PRODUCTS = translated("Apex's weight gradient accumulation kernels are installed on the machine")
_THREADS, _WARP, _SHORT = 128, 32, 128
_STAND_INS = Path(__file__).parent.parent / "stand_ins"
_MEGATRON_PATH, _TRAINING_PATH = str(_STAND_INS / "with_apex"), str(_STAND_INS / "with_apex_training")
_TRAINING = translated(
    "NVIDIA's Apex is installed on the machine, a version with apex.amp and apex.parallel (removed in May 2025); a "
    "stand-in is used here"
)
_MEGATRON_MODULE = "megatron.core"
Written = Callable[[torch.Tensor], object]
Assume = Callable[[Text], object]


def install(patches: Patches, written: Written, assume: Assume, count_flops: Computed = ignore_flops) -> None:
    """Make the modules importable; the first call is recorded as an assumption."""
    for name in _SOFTMAX_MODULES:
        patches.set_item(sys.modules, name, _make_softmax_module(name, written, assume))
    made = (_make_fast_layer_norm_module(written, assume), _make_layer_norm_module(written, assume))
    for module in (_make_weight_gradient_module(written, assume, count_flops), *made):
        patches.set_item(sys.modules, module.__name__, module)
    finder = _ApexFinder(assume)
    sys.meta_path.append(finder)
    patches.on_undo(lambda: sys.meta_path.remove(finder))


class _ApexFinder:
    """Makes ``apex`` importable if it isn't installed, for programs that use Megatron-Core or can't do without."""

    def __init__(self, assume: Assume) -> None:
        self._assume = assume

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec of the stand-in package, or None."""
        if name != "apex":
            return None
        if _MEGATRON_MODULE in sys.modules:
            return PathFinder.find_spec(name, [_MEGATRON_PATH])
        if not is_needed_import(sys._getframe(1)):
            return None
        self._assume(_TRAINING)
        return PathFinder.find_spec(name, [_TRAINING_PATH])


def _make_softmax_module(name: str, mark_written: Written, assume: Assume) -> ModuleType:
    def forward(inputs: torch.Tensor, *mask_and_scale: Any) -> torch.Tensor:
        assume(_SOFTMAX_ASSUMPTION)
        if inputs.dtype not in (torch.float16, torch.bfloat16):
            raise RuntimeError("Only fp16 and bf16 are supported")
        return torch.empty_like(inputs, memory_format=torch.contiguous_format)

    def backward(output_grads: torch.Tensor, softmax_results: torch.Tensor, scale: Any) -> torch.Tensor:
        mark_written(output_grads)
        return output_grads

    module = ModuleType(name)
    module.forward, module.backward = forward, backward  # type: ignore[attr-defined]
    if name == "scaled_masked_softmax_cuda":
        module.get_batch_per_block = _batches_per_block  # type: ignore[attr-defined]
    return module


def _batches_per_block(queries: int, keys: int, batches: int, num_heads: int) -> int:
    power = 1 << max(keys - 1, 0).bit_length()
    return _THREADS // min(power, _WARP) * (2 if power <= _SHORT else 1)


def _make_weight_gradient_module(mark_written: Written, assume: Assume, count_flops: Computed) -> ModuleType:
    def accumulate_weight_gradient(inputs: torch.Tensor, gradient: torch.Tensor, main_grad: torch.Tensor) -> None:
        assume(_PRODUCTS)
        for tensor in (inputs, gradient, main_grad):
            check(on_accelerator(tensor), f"Expected a CUDA tensor, but got a tensor on {tensor.device}")
        shape = (gradient.shape[-1], inputs.shape[-1])
        check(tuple(main_grad.shape) == shape, f"main_grad must have shape {shape}, but has {tuple(main_grad.shape)}")
        rows = gradient.numel() // gradient.shape[-1]
        count_flops(product_flops(shape[0], rows, shape[1]), inputs, gradient, main_grad, main_grad, kind="product")
        mark_written(main_grad)

    module = ModuleType("fused_weight_gradient_mlp_cuda")
    module.wgrad_gemm_accum_fp32 = module.wgrad_gemm_accum_fp16 = accumulate_weight_gradient  # type: ignore[attr-defined]
    return module


def _empty_statistics(rows: int, like: torch.Tensor, mark_written: Written) -> tuple[torch.Tensor, torch.Tensor]:
    found = [torch.empty(rows, dtype=torch.float32, device=like.device) for _ in range(2)]
    for tensor in found:
        mark_written(tensor)
    return found[0], found[1]


def _make_fast_layer_norm_module(mark_written: Written, assume: Assume) -> ModuleType:
    def ln_fwd(x: torch.Tensor, gamma: torch.Tensor, beta: torch.Tensor, epsilon: float) -> tuple[Any, ...]:
        assume(_NORM_ASSUMPTION)
        check(x.dim() == 2 and on_accelerator(x), "x must be a two-dimensional CUDA tensor")
        check(gamma.numel() == x.shape[1] == beta.numel(), "gamma and beta must have the hidden size")
        return torch.empty_like(x), *_empty_statistics(x.shape[0], x, mark_written)

    def ln_bwd(
        dy: torch.Tensor, x: torch.Tensor, mean: Any, rsigma: torch.Tensor, gamma: torch.Tensor, *rest: Any
    ) -> list[torch.Tensor]:
        rows = torch.cuda.get_device_properties(x.device).multi_processor_count
        parts = [torch.empty((rows, gamma.numel()), dtype=torch.float32, device=x.device) for _ in range(2)]
        return [torch.empty_like(x), torch.empty_like(gamma), torch.empty_like(gamma), *parts]

    module = ModuleType("fast_layer_norm")
    module.ln_fwd, module.ln_bwd = ln_fwd, ln_bwd  # type: ignore[attr-defined]
    return module


def _make_layer_norm_module(mark_written: Written, assume: Assume) -> ModuleType:
    def forward_affine(
        inputs: torch.Tensor, normalized_shape: Sequence[int], weight: torch.Tensor, bias: torch.Tensor, eps: float
    ) -> tuple[Any, ...]:
        assume(_NORM_ASSUMPTION)
        check(on_accelerator(inputs), "input must be a CUDA tensor")
        return torch.empty_like(inputs), *_empty_statistics(inputs.numel() // weight.numel(), inputs, mark_written)

    def backward_affine(
        gradient: torch.Tensor, mean: Any, rsigma: torch.Tensor, kept: torch.Tensor, shape: Any,
        weight: torch.Tensor, bias: torch.Tensor, *rest: Any,
    ) -> tuple[torch.Tensor, ...]:  # fmt: skip
        return torch.empty_like(kept), torch.empty_like(weight), torch.empty_like(bias)

    module = ModuleType("fused_layer_norm_cuda")
    module.forward_affine, module.backward_affine = forward_affine, backward_affine  # type: ignore[attr-defined]
    return module
