"""Host kernels: flattening, page-locked memory, communication (csrc/utils, csrc/pin_memory, csrc/cpu/comm)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors

Written = Callable[[torch.Tensor], object]


class Utils:
    """Replaces the module ``utils``."""

    def flatten(self, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        """A contiguous one-dimensional tensor (up to DeepSpeed 0.18)."""
        flat: torch.Tensor = _flatten_dense_tensors(tensors)  # type: ignore[no-untyped-call]
        return flat

    def unflatten(self, flat: torch.Tensor, tensors: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        """Views of ``flat`` with the shapes of ``tensors``."""
        views: Sequence[torch.Tensor] = _unflatten_dense_tensors(flat, tensors)  # type: ignore[no-untyped-call]
        return views

    def cast_to_byte_tensor(self, src_tensor: Any) -> Any:
        """A uint8 view of the same memory."""
        if isinstance(src_tensor, list | tuple):
            return [self.cast_to_byte_tensor(tensor) for tensor in src_tensor]
        if src_tensor.nbytes <= 1:
            return src_tensor
        return src_tensor.detach().reshape(-1).view(torch.uint8)


class PinHandle:
    """Replaces ``pin_handle`` of the module ``pin_memory``."""

    def new_cpu_locked_tensor(self, num_elem: int, example_tensor: torch.Tensor) -> torch.Tensor:
        """A page-locked one-dimensional tensor with the dtype of ``example_tensor``."""
        return torch.empty(num_elem, dtype=example_tensor.dtype, device="cpu").pin_memory()

    def free_cpu_locked_tensor(self, locked_tensor: torch.Tensor) -> bool:
        """Does nothing: the memory is freed with the tensor."""
        return True

    def free_cpu_locked_tensor_by_ptr(self, address: int) -> bool:
        """Does nothing: the memory is freed with the tensor."""
        return True

    def is_pinned(self, buffer: torch.Tensor) -> bool:
        """Whether the buffer is page-locked."""
        return buffer.is_pinned()


class PinMemory:
    """Replaces the module ``pin_memory``."""

    pin_handle = PinHandle


class ShareMemComm:
    """Replaces the modules ``deepspeed_shm_comm`` and ``deepspeed_ccl_comm``."""

    def __init__(self, mark_written: Written) -> None:
        self._written = mark_written

    def initialize(self, size: int, rank: int, *rest: Any) -> None:
        """Does nothing: there is no shared memory to open."""

    def vector_kernel_level(self) -> int:
        """The level of a host with AVX-512."""
        return 2

    def inference_all_reduce(self, data: torch.Tensor, operation: int = 0) -> torch.Tensor:
        """The sum over ranks, in a new tensor."""
        return torch.empty_like(data)

    def inference_all_reduce_(self, data: torch.Tensor, operation: int = 0) -> None:
        """The sum over ranks, in place."""
        self._written(data)
