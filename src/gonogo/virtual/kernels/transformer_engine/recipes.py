"""Quantization functions of the module (cast.cpp, transpose.cpp, recipe.cpp, bias.cpp, fp8_partial_cast.cpp)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from gonogo.virtual.kernels.checks import check
from gonogo.virtual.kernels.transformer_engine.compiled_functions import CompiledFunctions
from gonogo.virtual.kernels.transformer_engine.constants import torch_dtype
from gonogo.virtual.kernels.transformer_engine.quantized import (
    fill_quantized,
    make_quantized,
    scale_tensors,
    stored_tensors,
    tensor_shape,
    update_quantized,
)

_WRITTEN_ARGUMENT_POSITIONS = {
    "fp8_block_scaling_compute_partial_amax": (1,),
    "fp8_block_scaling_partial_cast": (1,),
    "mxfp8_scaling_compute_partial_amax": (1, 2),
    "mxfp8_scaling_partial_cast": (1, 2),
}
"""For functions that only write: the positions of the arguments that they write."""


class Recipes(CompiledFunctions):
    """Casts to and from FP8, and the scales of delayed scaling."""

    def functions(self) -> dict[str, Callable[..., Any]]:
        """Functions that only write, for FP8 parameters whose master weights are sharded across ranks."""
        return {
            name: functools.partial(self._mark_arguments_written, places)
            for name, places in _WRITTEN_ARGUMENT_POSITIONS.items()
        }

    def _mark_arguments_written(self, places: Sequence[int], *arguments: Any) -> None:
        self._require_plain_tensors(*(one for one in arguments if isinstance(one, torch.Tensor)))
        for place in places:
            self._written(arguments[place])

    def quantize(
        self, tensor: torch.Tensor, quantizer: Any, output: Any = None, noop: torch.Tensor | None = None
    ) -> Any:
        """Quantize into a new FP8 tensor, or into ``output``."""
        self._require_plain_tensors(tensor)
        whole = tensor.contiguous()
        new = self._allocator_on(tensor.device)
        if output is None:
            output = make_quantized(quantizer, tuple(tensor.shape), tensor.dtype, self._capability, new)
        else:
            update_quantized(quantizer, output, self._capability, new)
            for part in stored_tensors(output):
                self._written(part)
        self._quantize_output(quantizer, whole, output)
        return output

    def _quantize_output(self, quantizer: Any, source: torch.Tensor, output: Any) -> None:
        if source.numel():
            fill_quantized(quantizer, self._allocator_on(source.device))
            self._computed(0, source, *stored_tensors(output))

    def create_empty_quantized_tensor(
        self, quantizer: Any, shape: Sequence[int], dtype: torch.dtype, device: Any = None, pin_memory: bool = False
    ) -> Any:
        """A quantized tensor with uninitialized data."""
        new = self._allocator_on("cuda" if device is None else device, pin_memory)
        return make_quantized(quantizer, tuple(shape), dtype, self._capability, new)

    def dequantize(self, input: Any, otype: Any) -> torch.Tensor:
        """Convert back to high precision."""
        self._require_tensors(input)
        out: torch.Tensor = self._allocator_on(input.device)(tensor_shape(input), torch_dtype(otype))
        self._computed(0, *stored_tensors(input), out)
        return out

    def multi_tensor_quantize(self, tensor_list: Sequence[torch.Tensor], quantizer_list: Sequence[Any]) -> list[Any]:
        """Quantize each tensor with its quantizer."""
        check(len(tensor_list) == len(quantizer_list), f"Expected {len(tensor_list)} quantizers")
        return [self.quantize(tensor, one) for tensor, one in zip(tensor_list, quantizer_list, strict=True)]

    def split_quantize(
        self, tensor: torch.Tensor, split_sections: Sequence[int], quantizer_list: Sequence[Any], *rest: Any, **_: Any
    ) -> list[Any]:
        """Split the rows into sections, and quantize each with its quantizer."""
        self._require_plain_tensors(tensor)
        check(len(split_sections) == len(quantizer_list), f"Expected {len(split_sections)} quantizers")
        parts = torch.split(tensor.contiguous(), list(split_sections))
        if all(one is None for one in quantizer_list):
            return list(parts)
        return [self.quantize(part, one) for part, one in zip(parts, quantizer_list, strict=True)]

    def bgrad_quantize(self, input: torch.Tensor, quantizer: Any) -> list[Any]:
        """Returns ``[bias gradient, gradient]``, the gradient in FP8 if there is a quantizer."""
        self._require_plain_tensors(input)
        gradient: Any = input.contiguous()
        of_bias = self._allocate_like((input.shape[-1],), input.dtype, input)
        return [of_bias, gradient if quantizer is None else self.quantize(gradient, quantizer)]

    def fp8_transpose(self, input: torch.Tensor, otype: Any, output: torch.Tensor | None = None, **given: Any) -> Any:
        """Transpose FP8 data, moving the last dimension to the front."""
        output = given.get("out", output)
        self._require_plain_tensors(input)
        if output is None:
            output = self._allocate_like((input.shape[-1], *input.shape[:-1]), torch.uint8, input)
        self._written(output)
        self._computed(0, input, output)
        return output

    def compute_amax(self, input: torch.Tensor, amax: torch.Tensor) -> None:
        """Compute the largest absolute value into ``amax``."""
        self._require_plain_tensors(input, amax)
        input.contiguous()
        check(amax.dtype == torch.float32, "amax must be a float tensor")
        check(amax.numel() == 1, "amax must have exactly one element")
        self._written(amax)

    def fused_amax_and_scale_update_after_reduction(
        self, amax_reduction_buffer: torch.Tensor, amax_histories: Sequence[torch.Tensor],
        scales: Sequence[torch.Tensor], *settings: Any,
    ) -> None:  # fmt: skip
        """Update the amax histories and scales in place."""
        self._require_plain_tensors(amax_reduction_buffer, *amax_histories, *scales)
        for tensor in (*amax_histories, *scales):
            self._written(tensor)

    def swizzle_scales_for_gemm_(self, tensor: Any) -> None:
        """Replace the scales by new ones in the GEMM's swizzled layout."""
        self._require_tensors(tensor)
        for scales in scale_tensors(tensor):
            self._allocate_like(scales.shape, scales.dtype, scales)
