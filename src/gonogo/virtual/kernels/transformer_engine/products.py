"""GEMMs (csrc/extensions/gemm.cpp): cuBLASLt with a workspace that Transformer Engine's Python code owns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from gonogo.virtual.kernels.checks import check
from gonogo.virtual.kernels.flops import product_flops
from gonogo.virtual.kernels.transformer_engine.compiled_functions import CompiledFunctions, flatten_to_2d
from gonogo.virtual.kernels.transformer_engine.constants import torch_dtype
from gonogo.virtual.kernels.transformer_engine.quantized import (
    DELAYED,
    NOT_COVERED,
    is_quantized,
    scale_tensors,
    stored_tensors,
    supports_non_tn_fp8,
    tensor_shape,
)
from gonogo.virtual.unsupported import UnsupportedOperator

_POINTERS, _ALIGNMENT = 16, 256


class Gemms(CompiledFunctions):
    """``generic_gemm`` and the grouped GEMMs."""

    def generic_gemm(
        self,
        A: Any,
        transA: bool,
        B: Any,
        transB: bool,
        D: Any,
        quantizer: Any,
        output_dtype: Any,
        bias: Any,
        bias_type: Any,
        gelu: bool,
        gelu_in: Any,
        grad: bool,
        workspace: torch.Tensor,
        workspace_size: int,
        accumulate: bool,
        use_split_accumulator: bool,
        comm_overlap: Any = None,
        comm_type: Any = None,
        extra_output: Any = None,
        bulk_overlap: bool = False,
        alpha: float = 1.0,
        beta: float | None = None,
    ) -> list[Any]:
        """Returns ``[D, bias gradient, GELU input, extra output]``."""
        check(A is not None, "Tensor A has not been provided")
        check(B is not None, "Tensor B has not been provided")
        self._require_tensors(A, B, workspace)
        if comm_overlap is not None:
            raise UnsupportedOperator("generic_gemm with comm_overlap", NOT_COVERED)
        shape = _output_shape(tensor_shape(A), transA, tensor_shape(B), transB)
        self._check_layouts(A, not transA, "A")
        self._check_layouts(B, transB, "B")
        check(accumulate or not beta, "Trying to use non-zero beta while not accumulating into D tensor.")
        dtype = A.dtype if output_dtype is None else torch_dtype(output_dtype)
        # With per-tensor scales the GEMM writes FP8 directly if the output's scale is known in advance.
        one_scale = any(hasattr(operand, "_transpose") for operand in (A, B))
        if D is None:
            D = self._allocate_output(shape, dtype, A, quantizer, (DELAYED,) if one_scale else ())
        else:
            check(tuple(D.shape) == shape, f"GEMM output has invalid dims (expected {shape}, got {tuple(D.shape)})")
            self._written(D)
        self._reorder_scales(A, B)
        self._count_product_flops(A, transA, shape, (A, B, D))
        gradient = None
        if bias is not None and grad:
            gradient = self._allocate_like((tensor_shape(B)[-1],), dtype, A)
        elif bias is not None and not bias.is_contiguous():
            bias.contiguous()
        of_gelu = torch_dtype(bias_type) if is_quantized(A) or is_quantized(B) else dtype
        before_gelu = self._allocate_like(shape, of_gelu, A) if gelu and not grad else None
        return [D, gradient, before_gelu, extra_output]

    def te_general_grouped_gemm(
        self,
        A: Sequence[Any],
        transa: bool,
        B: Sequence[Any],
        transb: bool,
        D: list[torch.Tensor] | None,
        D_type: Any,
        m_splits: Sequence[int],
        bias: list[torch.Tensor],
        bias_type: Any,
        single_output: bool,
        pre_gelu_out: list[torch.Tensor],
        grad: bool,
        workspace: list[torch.Tensor],
        workspaceSize: int,
        accumulate: bool,
        use_split_accumulator: bool,
        math_sm_count: int,
    ) -> list[torch.Tensor]:
        """One GEMM per expert, written into ``D``; returns the biases or their gradients."""
        self._require_tensors(*A, *B, *workspace)
        check(not single_output or D is not None, "not implemented, D should be allocated for single output case.")
        for number, (a, b) in enumerate(zip(A, B, strict=True)):
            shape = _output_shape(tensor_shape(a), transa, tensor_shape(b), transb)
            self._check_layouts(a, not transa, "A")
            self._check_layouts(b, transb, "B")
            self._count_product_flops(a, transa, shape, (a, b))
            if D is None:
                self._allocate_like(shape, torch_dtype(D_type), a)
            elif not single_output:
                check(tuple(D[number].shape) == shape, f"GEMM output has invalid dims (expected {shape})")
        for output in (*(D or ()), *(bias if grad else ()), *(() if grad else pre_gelu_out)):
            if output.numel():
                self._written(output)
        return bias

    def get_grouped_gemm_setup_workspace_size(self, num_tensors: int) -> int:
        """Size in bytes of eight pointer arrays and seven integer arrays, with alignment
        (cublaslt_grouped_gemm.cu)."""
        pointers = 8 * (-(-num_tensors * 8 // _POINTERS) * _POINTERS)
        numbers = 7 * num_tensors * 4
        return -(-(pointers + numbers) // _ALIGNMENT) * _ALIGNMENT + _ALIGNMENT

    def get_num_cublas_streams(self) -> int:
        """The number of streams over which grouped GEMMs are distributed."""
        return 4

    def get_cublasLt_version(self) -> int:
        """The version that ships with CUDA 13."""
        return 130200

    def swap_first_dims(self, tensor: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
        """A copy with the first two dimensions swapped."""
        self._require_plain_tensors(tensor)
        check(tensor.dim() >= 2, "Invalid input for swap_first_dims operation.")
        first, second, *rest = tensor.shape
        if out is None:
            return self._allocate_like((second, first, *rest), tensor.dtype, tensor)  # type: ignore[no-any-return]
        self._written(out)
        return out

    def _check_layouts(self, operand: Any, columnwise: bool, name: str) -> None:
        """``CanonicalizeGemmInput``: an FP8 tensor must have its data in the layout in which it is read."""
        if not is_quantized(operand):
            return
        if hasattr(operand, "_transpose") and supports_non_tn_fp8(self._capability):
            return
        data = ("_transpose", "_columnwise_data") if columnwise else ("_data", "_rowwise_data")
        there = any(getattr(operand, one, None) is not None for one in data)
        check(there, f"Input {name} is missing {'column' if columnwise else 'row'}-wise usage")

    def _reorder_scales(self, *operands: Any) -> None:
        """Allocate the scales in the GEMM's swizzled layout, next to the originals: for MXFP8, and on Blackwell for
        blocks."""
        for operand in operands:
            for scales in scale_tensors(operand)[:1]:
                if scales.dtype == torch.uint8 and not getattr(operand, "_with_gemm_swizzled_scales", False):
                    self._allocate_like(scales.shape, torch.uint8, scales)
                elif scales.dim() == 2 and scales.dtype == torch.float32 and self._capability >= (10, 0):
                    rows, columns = flatten_to_2d(tensor_shape(operand))
                    self._allocate_like((-(-rows // 128) * 128, -(-columns // 128) * 4), torch.uint8, scales)

    def _count_product_flops(self, A: Any, transa: bool, shape: Sequence[int], operands: Sequence[Any]) -> None:
        rows, columns = flatten_to_2d(shape)
        inner = flatten_to_2d(tensor_shape(A))[1 if transa else 0]
        moved = [part for one in operands for part in (stored_tensors(one) or [one])]
        self._computed(product_flops(rows, inner, columns), *moved, kind="product")


def _output_shape(a: Sequence[int], transa: bool, b: Sequence[int], transb: bool) -> tuple[int, ...]:
    """``getGemmOutputShape``: the column-major product of A and B, as a row-major shape."""
    a_rows, a_last = flatten_to_2d(a)
    b_rows, b_last = flatten_to_2d(b)
    check(
        (a_last if transa else a_rows) == (b_rows if transb else b_last),
        f"Invalid matrix dimensions for GEMM (A=({a_rows},{a_last}), transa={int(transa)}, "
        f"B=({b_rows},{b_last}), transb={int(transb)})",
    )
    rows = (b_last,) if transb else tuple(b[:-1])
    return (*rows, a_rows if transa else a_last)
