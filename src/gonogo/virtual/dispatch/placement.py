"""The device on which an operator runs, and the error of real hardware if its operands are on different devices.

The rule is that of TensorIterator and of the checks generated for CUDA kernels (aten/src/ATen/TensorIterator.cpp
``compute_types``; c10::impl::common_device_check): all operands have to be on one device, but a zero-dimensional CPU
tensor may accompany any.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from gonogo.virtual.tensor import CPU, VirtualTensor

aten = torch.ops.aten

MIXED_DEVICE_OPERATORS = {
    aten.copy_.default, aten.copy.default, aten._to_copy.default, aten._foreach_copy_.default,
    aten.set_.source_Tensor, aten.set_.source_Storage, aten.set_.source_Storage_storage_offset,
    aten.is_same_size.default, aten.is_set_to.default,
}  # fmt: skip
"""Operators whose operands may be on different devices."""

INDEXING_OPERATORS = {
    aten.index.Tensor, aten._unsafe_index.Tensor, aten.index_put.default, aten.index_put_.default,
    aten._index_put_impl_.default, aten._unsafe_index_put.default,
}  # fmt: skip
"""Operators whose indices may be on the CPU whatever the device of the indexed tensor, but not the reverse."""


def device_mismatch_error(first: torch.device, second: torch.device) -> RuntimeError:
    """PyTorch's error for operands on two devices."""
    return RuntimeError(
        "Expected all tensors to be on the same device, but found at least two devices, "
        f"{first} and {second}!"
    )  # fmt: skip


def common_device(func: Any, tensors: list[VirtualTensor], args: Any) -> torch.device:
    """The device of ``func``'s result. Raises RuntimeError if real hardware would."""
    if func in MIXED_DEVICE_OPERATORS:
        return tensors[0]._device
    if func in INDEXING_OPERATORS:
        return _indexing_device(tensors, args)
    return _find_common_device(tensors)


def _find_common_device(tensors: Iterable[VirtualTensor]) -> torch.device:
    common: torch.device | None = None
    yields = False  # whether the device is that of a zero-dimensional CPU tensor
    for tensor in tensors:
        device = tensor._device
        if common is None:
            common, yields = device, device == CPU and tensor.dim() == 0
        elif device == common:
            yields = yields and tensor.dim() == 0
        elif device == CPU and tensor.dim() == 0:
            continue
        elif yields:
            common, yields = device, False
        else:
            raise device_mismatch_error(common, device)
    return common if common is not None else CPU


def _indexing_device(tensors: list[VirtualTensor], args: Any) -> torch.device:
    indexed = args[0]
    device: torch.device = indexed._device
    for index in args[1]:
        if isinstance(index, VirtualTensor) and index._device not in (device, CPU):
            raise RuntimeError(
                "indices should be either on cpu or on the same device as the indexed tensor "
                f"({device.type if device == CPU else device})"
            )
    if len(args) > 2 and isinstance(args[2], VirtualTensor) and args[2]._device != device and args[2].dim():
        raise device_mismatch_error(device, args[2]._device)
    return device


def foreach_devices(args: Any) -> list[torch.device]:
    """The devices of a ``_foreach_`` operator's results: each list position is an independent operation."""
    lists = [value for value in args if isinstance(value, list | tuple) and value and _is_tensor(value[0])]
    singles = [value for value in args if isinstance(value, VirtualTensor)]
    return [_find_common_device([*column, *singles]) for column in zip(*lists, strict=False)]


def _is_tensor(value: Any) -> bool:
    return isinstance(value, VirtualTensor)
