"""Tensors read from a file: with their values if they are small and really stored, else without."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from gonogo.virtual import private
from gonogo.virtual.memory.tracking import Cell, DeviceRecord
from gonogo.virtual.tensor import VirtualTensor, new_virtual, resolve_device
from gonogo.virtual.values import real

VALUES_LIMIT_BYTES = 64 << 10
"""Tensors up to this size are read with their values: scalars, buffers, random states, step counts."""

_page_cache = DeviceRecord("page cache", 0, 0, None)
"""Accounts for memory-mapped tensors. The kernel can reclaim such pages at any time and ranks share them, so they
never cause a host to run out of memory, and are not counted as the host's."""


def nbytes_of(shape: Sequence[int], dtype: torch.dtype) -> int:
    """Bytes of a contiguous tensor."""
    return math.prod(shape) * dtype.itemsize


def tensor_without_values(shape: Sequence[int], dtype: torch.dtype, device: object, *, mapped: bool) -> torch.Tensor:
    """A contiguous tensor of unknown values. ``mapped``: on the CPU it is memory-mapped and not counted."""
    where = resolve_device(device)
    if where.type == "meta":
        with private.without_dispatch_modes():
            return real.meta(tuple(shape), dtype=dtype)
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.insert(0, step)
        step *= max(size, 1)
    with private.without_dispatch_modes():
        tensor = new_virtual(tuple(shape), tuple(strides), dtype, where)
    nbytes = nbytes_of(shape, dtype)
    is_mapped = mapped and where.type == "cpu"
    tensor.cell = _page_cache_cell(nbytes) if is_mapped else VirtualTensor.virtual_mode.memory.new_cell(where, nbytes)
    return tensor


def tensor_with_values(value: torch.Tensor, device: object, *, mapped: bool) -> torch.Tensor:
    """A tensor on ``device`` with the values of a real CPU tensor, which is copied; ``mapped`` as above."""
    where = resolve_device(device)
    if where.type == "meta":
        return tensor_without_values(value.shape, value.dtype, where, mapped=False)
    with private.without_dispatch_modes():
        copy = value.detach().clone(memory_format=torch.contiguous_format)
        tensor: VirtualTensor = VirtualTensor.virtual_mode.wrap_real(copy, where)
    if mapped and where.type == "cpu":
        counted, tensor.cell = tensor.cell, _page_cache_cell(tensor.cell.nbytes)
        tensor.cell.values = counted.values
    return tensor


def _page_cache_cell(nbytes: int) -> Cell:
    """Storage in the page cache, as of a file that is mapped: it takes no memory of the process."""
    memory = VirtualTensor.virtual_mode.memory
    return Cell(_page_cache, nbytes, memory.category, memory.module)
