"""``FullyShardedDataParallel``: buffers that it moves in place, and tensors for gathered parameters.

It moves a buffer by ``buffer.data = …``, which can't turn a tensor with real values into a virtual one. In a
rehearsal, data on the CPU is real, including module buffers (rotary frequencies, running means). So buffers of
wrapped modules are replaced by virtual tensors that keep their values.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

from gonogo.virtual.mode import VirtualMode
from gonogo.virtual.patching.after_import import after_import
from gonogo.virtual.patching.patches import Patches
from gonogo.virtual.tensor import local_tensors

_GATHERED_ATTRIBUTES = ("_full_param_padded", "_full_prec_full_param_padded", "_mp_shard")
"""Attributes of a flat parameter, created before the first forward and resized around each use."""


def install(mode: VirtualMode) -> Callable[[], None]:
    """Virtualise the buffers of wrapped modules, and count gathered tensors as parameters; returns the undo."""
    patches = Patches()

    def patch_fsdp_init(file: ModuleType) -> None:
        owner: Any = file.FullyShardedDataParallel
        init = owner.__init__

        @functools.wraps(init)
        def init_with_virtual_buffers(self: Any, module: torch.nn.Module, *args: Any, **kwargs: Any) -> None:
            _virtualise_buffers(module, mode)
            init(self, module, *args, **kwargs)

        patches.set(owner, "__init__", init_with_virtual_buffers)

    def patch_flat_param_handle(file: ModuleType) -> None:
        owner: Any = file.FlatParamHandle
        make = owner.init_flat_param_attributes

        @functools.wraps(make)
        def init_and_recategorise(handle: Any) -> None:
            make(handle)
            for name in _GATHERED_ATTRIBUTES:
                for tensor in local_tensors(getattr(handle.flat_param, name, None)):
                    mode.memory.recategorise(tensor.cell, "parameters")

        patches.set(owner, "init_flat_param_attributes", init_and_recategorise)

    patches.on_undo(after_import("torch.distributed.fsdp._flat_param", patch_flat_param_handle))
    patches.on_undo(after_import("torch.distributed.fsdp.fully_sharded_data_parallel", patch_fsdp_init))
    return patches.undo


def _virtualise_buffers(module: torch.nn.Module, mode: VirtualMode) -> None:
    for part in module.modules():
        for name, buffer in part._buffers.items():
            if type(buffer) is torch.Tensor and buffer.device.type == "cpu":
                part._buffers[name] = mode.virtualise(buffer)
