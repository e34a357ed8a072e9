"""Makes optimizers and gradient clipping take the multi-tensor path, as on an accelerator.

Torch chooses ``foreach`` and ``fused`` by a parameter's exact type, and groups tensors by the device seen by C++.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.optim.optimizer as optimizer
import torch.utils._foreach_utils as foreach_utils

from gonogo.virtual.patching.patches import Patches
from gonogo.virtual.tensor import VirtualTensor


def install() -> Callable[[], None]:
    """Add virtual tensors to the types that support the multi-tensor path; returns the undo."""
    patches = Patches()
    for module in (optimizer, foreach_utils):
        if hasattr(module, "_foreach_supported_types"):
            patches.set(module, "_foreach_supported_types", [*module._foreach_supported_types, VirtualTensor])
    if not hasattr(foreach_utils, "_foreach_supported_types"):
        _patch_foreach_support(patches)
    original = torch._C._group_tensors_by_device_and_dtype
    ((_, dtype),) = original([[torch.empty(0)]], False)
    by_name = isinstance(dtype, str)  # torch 2.1

    @functools.wraps(original)
    def group_tensors(lists: Any, with_indices: bool = False) -> Any:
        if not any(_is_virtual(tensor) for tensor in lists[0]):
            return original(lists, with_indices)
        groups: dict[tuple[torch.device, Any], Any] = {}
        for position, first in enumerate(lists[0]):
            kind = str(first.dtype).removeprefix("torch.") if by_name else first.dtype
            columns, positions = groups.setdefault((first.device, kind), ([[] for _ in lists], []))
            for column, tensors in zip(columns, lists, strict=True):
                if tensors:
                    column.append(tensors[position])
            if with_indices:
                positions.append(position)
        return groups

    patches.set(torch._C, "_group_tensors_by_device_and_dtype", group_tensors)
    return patches.undo


def _patch_foreach_support(patches: Patches) -> None:
    """Patch gradient clipping of torch up to 2.1, which takes the multi-tensor path only for the class
    ``torch.Tensor``."""
    original: Any = foreach_utils._has_foreach_support

    def has_support(tensors: Any, device: torch.device) -> bool:
        if not any(_is_virtual(tensor) for tensor in tensors):
            return bool(original(tensors, device))
        return all(type(tensor) in (VirtualTensor, torch.Tensor, type(None)) for tensor in tensors)

    patches.replace_everywhere([(original, has_support)])


def _is_virtual(tensor: Any) -> bool:
    return isinstance(tensor, VirtualTensor) or isinstance(getattr(tensor, "_local_tensor", None), VirtualTensor)
