"""``nn.DataParallel``: one process that copies its model to each accelerator (``python train.py`` on several GPUs).

Tensors are moved between accelerators by C++ of a CUDA build (torch/csrc/cuda/comm.cpp), reimplemented here. The
replicas run one after the other instead of in threads; what each allocates is the same.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Sequence
from typing import Any

import torch

from gonogo.virtual.patching.patches import Patches
from gonogo.virtual.tensor import VirtualTensor

_Devices = Sequence[int]


def install(device_type: str) -> Callable[[], None]:
    """Move virtual tensors between accelerators; returns the undo."""
    patches = Patches()
    mover = _DeviceTransfers(device_type)
    for name in ("scatter", "gather", "broadcast", "broadcast_coalesced"):
        original = getattr(torch._C, f"_{name}", None)
        patches.set(torch._C, f"_{name}", _dispatch_virtual_tensors(getattr(mover, name), original))
    nccl: Any = torch.cuda.nccl
    available = nccl.is_available
    patches.set(nccl, "is_available", lambda tensors: not _has_virtual(tensors) and available(tensors))
    modules = [importlib.import_module(f"torch.nn.parallel.{name}") for name in ("parallel_apply", "data_parallel")]
    apply: Any = vars(modules[0])["parallel_apply"]

    @functools.wraps(apply)
    def apply_replicas_sequentially(
        replicas: Any, inputs: Any, kwargs_tup: Any = None, devices: Any = None
    ) -> list[Any]:
        kwargs_tup = kwargs_tup or ({},) * len(replicas)
        devices = devices or [None] * len(replicas)
        calls = zip(replicas, inputs, kwargs_tup, devices, strict=True)
        return [out for one in calls for out in apply(*([part] for part in one))]

    for module in modules:
        patches.set(module, "parallel_apply", apply_replicas_sequentially)
    return patches.undo


def _dispatch_virtual_tensors(
    virtual_function: Callable[..., Any], original: Callable[..., Any] | None
) -> Callable[..., Any]:
    def call_virtual_or_original(tensors: Any, *args: Any) -> Any:
        if original is not None and not _has_virtual(tensors):
            return original(tensors, *args)
        return virtual_function(tensors, *args)

    return call_virtual_or_original


def _has_virtual(tensors: Any) -> bool:
    return any(
        isinstance(tensor, VirtualTensor) for tensor in ([tensors] if isinstance(tensors, torch.Tensor) else tensors)
    )


class _DeviceTransfers:
    """Replaces torch's ``_scatter``, ``_gather``, ``_broadcast`` and ``_broadcast_coalesced`` for virtual tensors."""

    def __init__(self, device_type: str) -> None:
        self._type = device_type

    def scatter(
        self, tensor: torch.Tensor, devices: _Devices, sizes: Sequence[int] | None, dim: int, streams: Any
    ) -> list[torch.Tensor]:
        chunks = torch.split(tensor, list(sizes), dim) if sizes is not None else tensor.chunk(len(devices), dim)
        return [self._copy_to_device(chunk, index) for chunk, index in zip(chunks, devices, strict=False)]

    def gather(self, tensors: Sequence[torch.Tensor], dim: int, destination: int | None) -> torch.Tensor:
        size = list(tensors[0].shape)
        size[dim] = sum(tensor.shape[dim] for tensor in tensors)
        whole = torch.empty(size, dtype=tensors[0].dtype, device=self._device(destination))
        start = 0
        for tensor in tensors:
            whole.narrow(dim, start, tensor.shape[dim]).copy_(tensor, non_blocking=True)
            start += tensor.shape[dim]
        return whole

    def broadcast(self, tensor: torch.Tensor, devices: _Devices) -> list[torch.Tensor]:
        return [self._copy_to_device(tensor, index) for index in devices]

    def broadcast_coalesced(
        self, tensors: Sequence[torch.Tensor], devices: _Devices, buffer_size: int
    ) -> list[list[torch.Tensor]]:
        return [[self._copy_to_device(tensor, index) for tensor in tensors] for index in devices]

    def _copy_to_device(self, tensor: torch.Tensor, index: int) -> torch.Tensor:
        return tensor.to(self._device(index), non_blocking=True)

    def _device(self, index: int | None) -> torch.device:
        """The device of an index: -1 is the CPU, None the current accelerator."""
        if index == -1:
            return torch.device("cpu")
        return torch.device(self._type, torch.cuda.current_device() if index is None else index)
