"""What sums and means take besides their result: the blocks' partial results, if several blocks make one output.

Follows ``aten/src/ATen/native/cuda/Reduce.cuh``, where a buffer has one element per block, thread and output of the
vector, for each output again: tens of MiB where a bias's gradient is summed over tokens, and over 100 at the most. Only
sums over other dimensions than the last one of contiguous tensors are counted; other buffers are small.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from gonogo.virtual.mode import HANDLERS, VirtualMode
from gonogo.virtual.tensor import Spec

_MAX_THREADS = 512
_MAX_VECTOR_OUTPUTS = 4
_WARP = 32
_LEAST_VALUES, _MOST_VALUES = 16, 256
"""Values per thread between which the work is divided among blocks."""
_MAX_BYTES = 1 << 31
"""Larger inputs are reduced in parts, so that 32-bit offsets reach all of a part."""


def partial_results_bytes(outputs: int, inputs: int, innermost: int, element: int, threads_at_once: int) -> int:
    """Bytes of the buffer for a reduction of ``inputs`` values for each of ``outputs``, or 0 if it needs none.

    ``innermost`` is the size of the contiguous dimension that is kept, ``element`` the bytes of one value while it is
    summed, ``threads_at_once`` how many threads the whole device runs at once.
    """
    vector = math.gcd(_MAX_VECTOR_OUTPUTS, innermost)
    most = _MAX_THREADS // vector
    width = min(_power_below(min(outputs // vector, most)), _WARP)
    height = min(_power_below(min(inputs, most)), most // width)
    width = min(_power_below(min(outputs // vector, most)), most // height)
    values = inputs
    if values < min(height * _LEAST_VALUES, _MOST_VALUES):
        return 0  # each warp has outputs of its own
    values = -(-inputs // height)
    grid = -(-(outputs // vector) // width)
    wanted = threads_at_once // (width * height)
    if values < _MOST_VALUES or grid > wanted:
        return 0
    blocks = max(min(-(-wanted // grid), -(-values // _LEAST_VALUES)), -(-values // _MOST_VALUES))
    return element * outputs * blocks * width * vector if blocks > 1 else 0


def _power_below(number: int) -> int:
    return 1 << max(number, 1).bit_length() - 1


def _reduction(mode: VirtualMode, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    result = mode.run(mode.operator(func), args, kwargs)
    summed = args[0]
    if result.device.type != "cuda" or not result.numel():
        return result
    if not summed.is_contiguous() or not summed.is_floating_point():
        return result
    dims = {dim % summed.dim() for dim in args[1]} if len(args) > 1 and args[1] else set(range(summed.dim()))
    if not summed.dim() or summed.dim() - 1 in dims:
        return result
    inputs = summed.numel() // result.numel()
    while inputs > 1 and inputs * result.numel() * summed.element_size() > _MAX_BYTES:
        inputs = -(-inputs // 2)
    innermost = math.prod(summed.shape[max(dims) + 1 :])
    device = torch.cuda.get_device_properties(result.device)
    threads = device.multi_processor_count * device.max_threads_per_multi_processor
    size = partial_results_bytes(result.numel(), inputs, innermost, max(summed.element_size(), 4), threads)
    if size:
        mode._new_tensor(Spec.of(torch.Size((size,)), (1,), torch.uint8, result.device), size)  # freed at once
    return result


for _operator in (torch.ops.aten.sum.dim_IntList, torch.ops.aten.mean.dim):
    HANDLERS[_operator] = _reduction
