"""The common base of all parts of the stand-in for the compiled module."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch

from gonogo.finding import translated
from gonogo.virtual.kernels.checks import check, on_accelerator
from gonogo.virtual.kernels.flops import Computed, ignore_flops
from gonogo.virtual.kernels.transformer_engine.quantized import (
    NOT_COVERED,
    fill_quantized,
    is_quantized,
    make_quantized,
    recipe_name,
    stored_tensors,
)
from gonogo.virtual.unsupported import UnsupportedOperator
from gonogo.virtual.values.assumptions import Assume

ASSUMED = translated("Transformer Engine's compiled library and cuDNN {cudnn} load on the machine").format(cudnn="9.20")
ATTENTION_ASSUMPTION = translated("cuDNN's attention runs on the machine")
CUDNN_VERSION = 92000
"""The assumed cuDNN version, whose capabilities decide which attention is used."""


class CompiledFunctions:
    """A part of the compiled module: its public methods become functions of the module."""

    def __init__(
        self,
        mark_written: Callable[[torch.Tensor], object],
        assume: Assume,
        compute_capability: tuple[int, int],
        count_flops: Computed = ignore_flops,
    ) -> None:
        self._written = mark_written
        self._assume = assume
        self._capability = compute_capability
        self._computed = count_flops

    def _allocate_like(self, shape: Sequence[int], dtype: torch.dtype, like: torch.Tensor) -> Any:
        """Uninitialised memory on the device of ``like``."""
        made = torch.empty(tuple(shape), dtype=dtype, device=like.device)
        self._written(made)
        return made

    def _allocator_on(
        self, device: Any, pin_memory: bool = False
    ) -> Callable[[Sequence[int], torch.dtype], torch.Tensor]:
        """A function that allocates uninitialised memory on a device."""

        def allocate_tensor(shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
            made = torch.empty(tuple(shape), dtype=dtype, device=device, pin_memory=pin_memory)
            self._written(made)
            return made

        return allocate_tensor

    def _allocate_output(
        self, shape: Sequence[int], dtype: torch.dtype, like: Any, quantizer: Any, fused: Collection[str] = ()
    ) -> Any:
        """The output of a kernel: a plain tensor, or FP8 if there is a quantizer.

        If the kernel doesn't write FP8 itself (``fused``: the recipes for which it does), a temporary plain result is
        quantized afterwards.
        """
        new = self._allocator_on(like.device)
        if quantizer is None:
            return new(shape, dtype)
        out = make_quantized(quantizer, shape, dtype, self._capability, new)
        if recipe_name(quantizer) not in fused:
            between = new(shape, dtype)
            fill_quantized(quantizer, new)
            self._computed(0, between, *stored_tensors(out))
        return out

    def _require_plain_tensors(self, *operands: Any) -> None:
        """Check that all operands are plain tensors on the accelerator."""
        self._assume(ASSUMED)
        for operand in operands:
            if isinstance(operand, torch.Tensor) and type(operand).__module__.startswith("transformer_engine."):
                raise UnsupportedOperator(type(operand).__name__, NOT_COVERED)
            if not isinstance(operand, torch.Tensor):
                raise UnsupportedOperator(type(operand).__name__, NOT_COVERED)
            check(on_accelerator(operand), f"Expected a CUDA tensor, but got a tensor on {operand.device}")

    def _require_tensors(self, *operands: Any) -> None:
        """Like :meth:`_require_plain_tensors`, but also accepts FP8 tensors."""
        for operand in operands:
            self._require_plain_tensors(*(stored_tensors(operand) if is_quantized(operand) else [operand]))


def flatten_to_2d(shape: Sequence[int]) -> tuple[int, int]:
    """``get_2d_dims``: the product of all dimensions but the last, and the last."""
    rows = 1
    for size in shape[:-1]:
        rows *= size
    return rows, (shape[-1] if len(shape) else 1)
