"""Apex's data parallelism: gradients are averaged in flat buckets at the end of the backward pass."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors

from apex import _rest
from apex.parallel.LARC import LARC

__all__ = ["LARC", "DistributedDataParallel", "Reducer", "SyncBatchNorm", "convert_syncbn_model"]
__getattr__ = _rest.module_getattr(__name__)
ReduceOp = dist.ReduceOp
_FLATTEN: Any = _flatten_dense_tensors
_UNFLATTEN: Any = _unflatten_dense_tensors
_MESSAGE_SIZE = 10_000_000
"""How many elements are reduced at a time."""


class SyncBatchNorm(torch.nn.SyncBatchNorm):
    """PyTorch's, by Apex's arguments."""

    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float = 0.1, affine: bool = True,
        track_running_stats: bool = True, process_group: Any = None, channel_last: bool = False,
        fuse_relu: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(num_features, eps, momentum, affine, track_running_stats, process_group)
        self.fuse_relu = fuse_relu

    def forward(self, input: torch.Tensor, z: Any = None) -> torch.Tensor:
        """The normalized input, with ``z`` added and through a ReLU where it is fused."""
        out = super().forward(input)
        out = out if z is None else out + z
        return torch.relu(out) if self.fuse_relu else out


def convert_syncbn_model(module: Any, process_group: Any = None, channel_last: bool = False) -> Any:
    """The model with batch norms that are synchronized."""
    convert: Any = torch.nn.SyncBatchNorm.convert_sync_batchnorm
    return convert(module, process_group)


def create_syncbn_process_group(group_size: int) -> Any:
    """The group of this rank of so many; None for all ranks."""
    world = dist.get_world_size()
    if group_size in (0, world):
        return None
    if world < group_size or world % group_size:
        raise AssertionError
    groups = [dist.new_group(range(first, first + group_size)) for first in range(0, world, group_size)]
    return groups[dist.get_rank() // group_size]


class Reducer:
    """Averages the gradients of a module, or of parameters, when it is asked to."""

    def __init__(self, module_or_grads_list: Any) -> None:
        self.module = module_or_grads_list
        if isinstance(self.module, torch.nn.Module):
            _broadcast(self.module)

    def reduce(self) -> None:
        """Average them now."""
        whole = isinstance(self.module, torch.nn.Module)
        _average([one.grad for one in self.module.parameters() if one.grad is not None] if whole else self.module)


class DistributedDataParallel(torch.nn.Module):
    """Keeps no buckets: gradients are flattened, reduced and copied back."""

    def __init__(self, module: torch.nn.Module, message_size: int = _MESSAGE_SIZE, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        self.module = module
        self.message_size = message_size
        self._queued = False
        _broadcast(module)
        for one in module.parameters():
            if one.requires_grad:
                register: Any = one.register_post_accumulate_grad_hook
                register(self._queue)

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """The module's output."""
        return self.module(*inputs, **kwargs)

    def _queue(self, parameter: torch.Tensor) -> None:
        if not self._queued:
            self._queued = True
            torch.autograd.Variable._execution_engine.queue_callback(self._reduce)

    def _reduce(self) -> None:
        self._queued = False
        _average([one.grad for one in self.module.parameters() if one.grad is not None], self.message_size)


def _broadcast(module: torch.nn.Module) -> None:
    for one in [*module.parameters(), *module.buffers()]:
        dist.broadcast(one.detach(), 0)


def _average(gradients: Any, message_size: int = _MESSAGE_SIZE) -> None:
    bucket: list[torch.Tensor] = []
    for number, gradient in enumerate(gradients, 1):
        bucket.append(gradient)
        following = gradients[number] if number < len(gradients) else None
        full = sum(one.numel() for one in bucket) >= message_size
        if full or following is None or following.dtype is not gradient.dtype:
            flat = _FLATTEN(bucket)
            dist.all_reduce(flat)
            flat.div_(dist.get_world_size())
            for one, reduced in zip(bucket, _UNFLATTEN(flat, bucket), strict=True):
                one.copy_(reduced)
            bucket = []
