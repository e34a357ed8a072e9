"""Multi-tensor functions: optimizers, norms, scaling (csrc/extensions/multi_tensor/)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from gonogo.virtual.kernels.checks import check
from gonogo.virtual.kernels.transformer_engine.compiled_functions import CompiledFunctions

_BLOCKS = 320
_READ_ONLY_LIST_COUNTS = {
    **dict.fromkeys(
        ("multi_tensor_adam", "multi_tensor_adam_fp8", "multi_tensor_adam_param_remainder", "multi_tensor_sgd"), 1
    ),
    **dict.fromkeys(("multi_tensor_adam_capturable", "multi_tensor_adam_capturable_master"), 1),
    **dict.fromkeys(("multi_tensor_scale", "multi_tensor_scale_tensor"), 1),
}
"""How many leading tensor lists are only read (gradients, or the tensors to be scaled)."""


class Optimizers(CompiledFunctions):
    """Multi-tensor functions: what they write, and what norms allocate."""

    def functions(self) -> dict[str, Callable[..., Any]]:
        """Functions that only write into their tensor lists."""
        return {name: self._make_multi_tensor_function(read) for name, read in _READ_ONLY_LIST_COUNTS.items()}

    def _make_multi_tensor_function(self, input_count: int) -> Callable[..., Any]:
        def run_multi_tensor(
            chunk_size: int, noop_flag: torch.Tensor, tensor_lists: Sequence[Sequence[torch.Tensor]], *numbers: Any
        ) -> None:
            self._check_tensor_lists(noop_flag, tensor_lists)
            for tensors in tensor_lists[input_count:]:
                for tensor in tensors:
                    self._written(tensor)

        return run_multi_tensor

    def multi_tensor_l2norm(
        self, chunk_size: int, noop_flag: torch.Tensor, tensor_lists: Sequence[Sequence[torch.Tensor]],
        per_tensor: bool | None = None,
    ) -> tuple[Any, Any]:  # fmt: skip
        """The norm of all tensors, and the norm of each."""
        self._check_tensor_lists(noop_flag, tensor_lists)
        first = tensor_lists[0]
        self._allocate_like((_BLOCKS,), torch.float32, first[0])
        norm = self._allocate_like((1,), torch.float32, first[0])
        if not per_tensor:
            return norm, self._allocate_like((0,), torch.float32, first[0])
        chunks = max(-(-tensor.numel() // chunk_size) for tensor in first)
        self._allocate_like((len(first) * chunks,), torch.float32, first[0])
        return norm, self._allocate_like((len(first),), torch.float32, first[0])

    def multi_tensor_unscale_l2norm(
        self, chunk_size: int, noop_flag: torch.Tensor, tensor_lists: Sequence[Sequence[torch.Tensor]],
        inv_scale: torch.Tensor, per_tensor: bool | None = None,
    ) -> tuple[Any, Any]:  # fmt: skip
        """Like :meth:`multi_tensor_l2norm`, for the unscaled tensors."""
        self._require_plain_tensors(inv_scale)
        return self.multi_tensor_l2norm(chunk_size, noop_flag, tensor_lists, per_tensor)

    def _check_tensor_lists(self, noop_flag: torch.Tensor, tensor_lists: Sequence[Sequence[torch.Tensor]]) -> None:
        self._require_plain_tensors(noop_flag, *(tensor for tensors in tensor_lists for tensor in tensors))
        check(len(tensor_lists) > 0 and len(tensor_lists[0]) > 0, "tensor_lists[0].size() is not > 0")
        for tensors in tensor_lists:
            check(len(tensors) == len(tensor_lists[0]), "Size mismatch among tensor lists")
            for tensor, other in zip(tensors, tensor_lists[0], strict=True):
                check(tensor.numel() == other.numel(), "Size mismatch")
