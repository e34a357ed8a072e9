"""The quantizers of ZeRO++ (csrc/quantization/pt_binding.cpp) and of FP6/FP8 linear layers (csrc/fp_quantizer)."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Any

import torch

from gonogo.virtual.kernels.checks import check_in_device_memory

Written = Callable[[torch.Tensor], object]


class QuantizationType(IntEnum):
    """Whether groups have an offset in addition to their scale."""

    Symmetric = 0
    Asymmetric = 1


def _scales_per_group(kind: Any) -> int:
    return 2 if int(kind) == QuantizationType.Asymmetric else 1


def _scale_sizes(sizes: torch.Size, factor: float) -> list[int]:
    return [*sizes[:-1], int(sizes[-1] * factor)]


class Quantizer:
    """Replaces the module ``quantizer``."""

    QuantizationType = QuantizationType
    Symmetric = QuantizationType.Symmetric
    Asymmetric = QuantizationType.Asymmetric

    def __init__(self, written: Written) -> None:
        self._written = written

    def quantize(self, input_vals: torch.Tensor, groups: int, num_bits: int, quant_type: Any) -> list[torch.Tensor]:
        """Quantize to int8 (two values per byte if 4-bit); returns the values, and float32 scales per group."""
        check_in_device_memory("quantizer.quantize", input_vals=input_vals)
        shape = _scale_sizes(input_vals.shape, 1 if num_bits == 8 else 0.5)
        return self._allocate_quantized_and_scales(input_vals, shape, groups, quant_type)

    def dequantize(
        self, quantized: torch.Tensor, params: torch.Tensor, groups: int, num_bits: int, quant_type: Any
    ) -> torch.Tensor:
        """Dequantize to float16."""
        return self._allocate_dequantized(quantized, params, num_bits, torch.float16)

    def dequantize_fp32(
        self, quantized: torch.Tensor, params: torch.Tensor, groups: int, num_bits: int, quant_type: Any
    ) -> torch.Tensor:
        """Dequantize to float32."""
        return self._allocate_dequantized(quantized, params, num_bits, torch.float32)

    def dequantize_int4_to_half_experimental(
        self, data: torch.Tensor, scale: torch.Tensor, minimum: torch.Tensor, num_group: int, group_size: int
    ) -> torch.Tensor:
        """Dequantize to float16, in the shape [num_group, group_size]."""
        check_in_device_memory("quantizer.dequantize_int4_to_half_experimental", data_in=data)
        return torch.empty((num_group, group_size), dtype=torch.float16, device=data.device)

    dequantize_int8_to_half_experimental = dequantize_int4_to_half_experimental

    def swizzle_quant(
        self,
        input_vals: torch.Tensor,
        groups: int,
        num_bits: int,
        quant_type: Any,
        pipeline_size: int,
        nodes: int,
        devices_per_node: int,
    ) -> list[torch.Tensor]:
        """Quantize to one-dimensional int8 in the order of the all-to-all; returns the values and scales."""
        check_in_device_memory("quantizer.swizzle_quant", input_vals=input_vals)
        return self._allocate_quantized_and_scales(
            input_vals, [input_vals.numel() // (8 // num_bits)], groups, quant_type
        )

    def loco_swizzle_quant(
        self, input_vals: torch.Tensor, error_feedback: torch.Tensor, err_beta: float, *rest: Any
    ) -> list[torch.Tensor]:
        """Like :meth:`swizzle_quant`, with the previous step's error feedback, which is updated."""
        out = self.swizzle_quant(input_vals, *rest)
        self._written(error_feedback)
        return out

    def quantized_reduction(
        self,
        input_vals: torch.Tensor,
        input_scales: torch.Tensor,
        in_groups: int,
        out_groups: int,
        num_bits: int,
        quant_type: Any,
        devices_per_node: int,
    ) -> list[torch.Tensor]:
        """Sum the shards of a node's devices and quantize the result."""
        check_in_device_memory("quantizer.quantized_reduction", input_vals=input_vals, input_scales=input_scales)
        shape = [*input_vals.shape[:-1], input_vals.shape[-1] // devices_per_node]
        return self._allocate_quantized_and_scales(input_vals, shape, out_groups, quant_type)

    def loco_quantized_reduction(
        self,
        input_vals: torch.Tensor,
        input_scales: torch.Tensor,
        error_feedback: torch.Tensor,
        err_beta: float,
        *rest: Any,
    ) -> list[torch.Tensor]:
        """Like :meth:`quantized_reduction`, with error feedback."""
        out = self.quantized_reduction(input_vals, input_scales, *rest)
        self._written(error_feedback)
        return out

    def _allocate_quantized_and_scales(
        self, like: torch.Tensor, shape: list[int], groups: int, kind: Any
    ) -> list[torch.Tensor]:
        scales = torch.empty((groups, _scales_per_group(kind)), dtype=torch.float32, device=like.device)
        return [torch.empty(shape, dtype=torch.int8, device=like.device), scales]

    def _allocate_dequantized(
        self, quantized: torch.Tensor, params: torch.Tensor, num_bits: int, dtype: torch.dtype
    ) -> torch.Tensor:
        check_in_device_memory("quantizer.dequantize", quantized_data=quantized, params=params)
        shape = _scale_sizes(quantized.shape, 1 if num_bits == 8 else 2)
        return torch.empty(shape, dtype=dtype, device=quantized.device)

    def __getattr__(self, name: str) -> Any:
        """``ds_quantize_fp16`` and its eight variants, which round the values in place and return them."""
        if not name.startswith(("ds_quantize", "ds_sr_quantize")):
            raise AttributeError(name)

        def quantize_in_place(vals: torch.Tensor, groups: int, bits: int) -> torch.Tensor:
            check_in_device_memory(f"quantizer.{name}", vals=vals)
            self._written(vals)
            return vals

        return quantize_in_place


class FpQuantizer:
    """Replaces the module ``fp_quantizer``."""

    def __init__(self, written: Written) -> None:
        self._written = written

    def quantize(
        self,
        out: torch.Tensor,
        val: torch.Tensor,
        group_size: int,
        stochastic_rounding: int,
        q_bits: int,
        q_mantisa_bits: int,
    ) -> torch.Tensor:
        """Quantize ``val`` into ``out``."""
        check_in_device_memory("fp_quantizer.quantize", out=out, val=val)
        self._written(out)
        return out

    def dequantize(
        self, val: torch.Tensor, val_q: torch.Tensor, group_size: int, q_mantisa_bits: int, q_exponent_bits: int
    ) -> None:
        """Dequantize ``val_q`` into ``val``."""
        check_in_device_memory("fp_quantizer.dequantize", val=val, val_q=val_q)
        self._written(val)

    def selective_dequantize(self, val: torch.Tensor, val_q: torch.Tensor, indexes: torch.Tensor, *sizes: int) -> None:
        """Dequantize the rows of ``val_q`` that ``indexes`` selects into ``val``."""
        check_in_device_memory("fp_quantizer.selective_dequantize", val=val, val_q=val_q, indexes=indexes)
        self._written(val)

    def get_scales(self, out: torch.Tensor, num_groups: int) -> torch.Tensor:
        """The scales stored between the values: a view in C++, separate memory here."""
        check_in_device_memory("fp_quantizer.get_scales", out=out)
        return torch.empty((num_groups, 1), dtype=torch.float32, device=out.device)
