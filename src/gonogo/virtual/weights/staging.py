"""``torch.distributed.checkpoint.async_save``: the state is copied to host memory first, by storages and attributes.

The copier walks into a tensor's attributes and storage, which of a virtual tensor are gonogo's. What it makes is the
same here: a tensor in host memory, pinned where it pins them, with the program's attributes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

from gonogo.virtual.patching.after_import import after_import
from gonogo.virtual.patching.patches import Patches
from gonogo.virtual.tensor import VirtualTensor

_MODULE = "torch.distributed.checkpoint._state_dict_stager"


def install() -> Callable[[], None]:
    """Have virtual tensors copied as tensors; returns the undo."""
    patches = Patches()
    patches.on_undo(after_import(_MODULE, functools.partial(_stage, patches)))
    return patches.undo


def _stage(patches: Patches, module: ModuleType) -> None:
    owner: Any = module.StateDictStager
    original = getattr(owner, "_offload_tensor", None)
    if original is None:
        return

    @functools.wraps(original)
    def offload(stager: Any, tensor: torch.Tensor, memo: dict[int, Any], non_blocking: bool = False) -> torch.Tensor:
        if not isinstance(tensor, VirtualTensor):
            staged: torch.Tensor = original(stager, tensor, memo, non_blocking)
            return staged
        size = tensor.numel() * tensor.element_size()
        pinned = bool(stager.pin_memory and size and size >= getattr(stager, "pin_memory_min_bytes", 0))
        copy = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu", pin_memory=pinned)
        memo[id(tensor)] = copy.copy_(tensor.detach(), non_blocking=non_blocking)
        for name, value in vars(tensor).items():
            setattr(copy, name, stager.deepcopy_with_tensor_offload(value, memo, non_blocking=non_blocking))
        return copy

    patches.set(owner, "_offload_tensor", offload)
