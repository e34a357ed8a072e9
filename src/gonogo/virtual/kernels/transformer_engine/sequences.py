"""Context parallelism over packed sequences (the ``thd_`` functions of csrc/extensions/attention.cpp)."""

from __future__ import annotations

import itertools
from typing import Any

import torch

from gonogo.virtual.kernels.flops import known_integers
from gonogo.virtual.kernels.transformer_engine.compiled_functions import CompiledFunctions


class Sequences(CompiledFunctions):
    """Splits sequences into halves, and merges partial results."""

    def thd_read_half_tensor(self, tensor: torch.Tensor, cu_seqlens: torch.Tensor, half_idx: int) -> Any:
        """The first or second half of each sequence."""
        self._require_plain_tensors(tensor, cu_seqlens)
        shape = list(tensor.shape)
        shape[0 if tensor.dim() == 3 else 1] //= 2
        return self._allocate_like(shape, tensor.dtype, tensor)

    def thd_second_half_lse_correction(
        self, lse: torch.Tensor, lse_per_step: torch.Tensor, cu_seqlens: torch.Tensor, lse_packed: bool
    ) -> None:
        """Correct ``lse`` in place."""
        self._require_plain_tensors(lse, lse_per_step, cu_seqlens)
        self._written(lse)

    def thd_read_second_half_lse(
        self, lse: torch.Tensor, cu_seqlens: torch.Tensor, lse_packed: bool, second_half_lse_seqlen: int
    ) -> Any:
        """The log-sum-exp values of the sequences' second halves."""
        self._require_plain_tensors(lse, cu_seqlens)
        return self._allocate_like((*lse.shape[: 1 if lse_packed else 2], second_half_lse_seqlen), lse.dtype, lse)

    def thd_out_correction(
        self, out: torch.Tensor, out_per_step: torch.Tensor, lse: torch.Tensor, lse_per_step: torch.Tensor,
        cu_seqlens: torch.Tensor, only_second_half: bool, lse_packed: bool,
    ) -> None:  # fmt: skip
        """Correct ``out`` in place."""
        self._require_plain_tensors(out, out_per_step, lse, lse_per_step, cu_seqlens)
        self._written(out)

    def thd_grad_correction(
        self, grad: torch.Tensor, grad_per_step: torch.Tensor, cu_seqlens: torch.Tensor, first_half: str,
        second_half: str,
    ) -> None:  # fmt: skip
        """Correct ``grad`` in place."""
        self._require_plain_tensors(grad, grad_per_step, cu_seqlens)
        self._written(grad)

    def thd_get_partitioned_indices(
        self, cu_seqlens: torch.Tensor, total_tokens: int, world_size: int, rank: int
    ) -> Any:
        """The indices of this rank's tokens: its chunk counted from the front, and the one counted from the back."""
        self._require_plain_tensors(cu_seqlens)
        ends = known_integers(cu_seqlens)
        if ends is None:
            return self._allocate_like((total_tokens // world_size,), torch.int32, cu_seqlens)
        found: list[int] = []
        for begin, end in itertools.pairwise(ends):
            chunk = (end - begin) // (2 * world_size)
            for place in (rank, 2 * world_size - 1 - rank):
                found += range(begin + place * chunk, begin + (place + 1) * chunk)
        return torch.tensor(found, dtype=torch.int32, device=cu_seqlens.device)
