"""Grouped tensors: several matrices in one buffer, with sizes known only on the device (gemm.cpp, misc.cpp)."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import torch

from gonogo.virtual.kernels.checks import check, on_accelerator
from gonogo.virtual.kernels.flops import known_integers
from gonogo.virtual.kernels.transformer_engine.compiled_functions import CompiledFunctions
from gonogo.virtual.kernels.transformer_engine.quantized import NOT_COVERED
from gonogo.virtual.unsupported import UnsupportedOperator

_DATA_ATTRIBUTES = ("rowwise_data", "columnwise_data")
_ALIGNMENT = 16


class GroupedTensors(CompiledFunctions):
    """Functions around Transformer Engine's ``GroupedTensor``, in high precision."""

    def splits_to_offsets(self, first_dims: torch.Tensor, logical_last_dim: int) -> torch.Tensor:
        """Offset of each matrix, and the end of the last one: int64 of shape ``(len(first_dims) + 1,)``."""
        self._require_plain_tensors(first_dims)
        check(first_dims.dtype == torch.int64, "first_dims must have dtype int64.")
        check(first_dims.dim() == 1, "first_dims must be a 1D tensor.")
        check(logical_last_dim > 0, "logical_last_dim must be greater than 0.")
        return self._cumulative_offsets(first_dims, logical_last_dim, zero=True, dtype=torch.int64)

    def splits_to_offsets_multi(
        self, split_sizes: torch.Tensor, device: Any, *, strides: Sequence[int], include_leading_zero: Sequence[bool],
        dtypes: Sequence[torch.dtype], bulk_allocate: bool = False,
    ) -> tuple[torch.Tensor, list[torch.Tensor]]:  # fmt: skip
        """The sizes as int64 on ``device``, and one tensor of offsets per stride."""
        sizes = split_sizes.to(device=device, dtype=torch.int64)
        self._require_plain_tensors(sizes)
        kinds = zip(strides, include_leading_zero, dtypes, strict=True)
        return sizes, [self._cumulative_offsets(sizes, stride, zero=zero, dtype=dtype) for stride, zero, dtype in kinds]

    def _cumulative_offsets(self, sizes: torch.Tensor, stride: int, *, zero: bool, dtype: torch.dtype) -> torch.Tensor:
        known = known_integers(sizes)
        if known is None:
            return self._allocate_like((sizes.numel() + zero,), dtype, sizes)  # type: ignore[no-any-return]
        sums = [stride * end for end in itertools.accumulate(known)]
        return torch.tensor([0, *sums] if zero else sums, dtype=dtype, device=sizes.device)

    def copy_data_ptrs_to_device(self, tensors: Sequence[torch.Tensor], device: Any) -> torch.Tensor:
        """The tensors' data pointers as a tensor on the device."""
        return torch.empty(len(tensors), dtype=torch.int64, device=device)

    def bulk_allocate(
        self, shapes: Sequence[Sequence[int]], dtypes: Sequence[torch.dtype], device: Any = None,
        alignments: Sequence[int] | None = None,
    ) -> list[torch.Tensor]:  # fmt: skip
        """Allocate all tensors in one buffer."""
        check(len(shapes) == len(dtypes), f"Got {len(shapes)} shapes and {len(dtypes)} dtypes.")
        aligned = list(alignments) if alignments is not None else [dtype.itemsize for dtype in dtypes]
        begins, end = [], 0
        for shape, dtype, alignment in zip(shapes, dtypes, aligned, strict=True):
            # A view as another dtype has to start at a multiple of its element size.
            begins.append(-(-end // max(alignment, _ALIGNMENT)) * max(alignment, _ALIGNMENT))
            end = begins[-1] + _numel(shape) * dtype.itemsize
        memory = torch.empty(end, dtype=torch.uint8, device=device or "cuda")
        parts = zip(begins, shapes, dtypes, strict=True)
        return [
            memory[begin : begin + _numel(shape) * dtype.itemsize].view(dtype).view(tuple(shape))
            for begin, shape, dtype in parts
        ]

    def te_general_grouped_gemm_for_grouped_tensor(
        self, A: Any, transa: bool, B: Any, transb: bool, D: Any, *settings: Any
    ) -> Any:
        """A grouped GEMM written into ``D``: a grouped tensor, or a list of matrices."""
        for operand in (A, B):
            self._check_operand(operand)
        for tensor in _stored_tensors(D):
            self._written(tensor)
        return D

    te_general_grouped_gemm_for_discrete_in = te_general_grouped_gemm_for_grouped_tensor
    te_general_grouped_gemm_for_discrete_out = te_general_grouped_gemm_for_grouped_tensor

    def _check_operand(self, group: Any) -> None:
        quantizer = getattr(group, "quantizer", None)
        members = _stored_tensors(group)
        if quantizer is not None:
            raise UnsupportedOperator(f"grouped {type(quantizer).__name__}", NOT_COVERED)
        self._require_plain_tensors(*members)
        check(all(on_accelerator(tensor) for tensor in members), "Expected a CUDA tensor")


def _stored_tensors(group: Any) -> list[torch.Tensor]:
    if isinstance(group, list | tuple):
        return list(group)
    found = [getattr(group, name, None) for name in _DATA_ATTRIBUTES]
    return [tensor for tensor in found if isinstance(tensor, torch.Tensor)]


def _numel(shape: Sequence[int]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count
