"""Dropout as CUDA runs it: one fused kernel that keeps a boolean mask.

ATen's own choice asks ``is_cuda``, which C++ answers with no for a virtual tensor, and then keeps a mask of the
input's dtype.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from gonogo.virtual.patching import Patches
from gonogo.virtual.tensor import VirtualTensor


def install() -> Callable[[], None]:
    """Send dropout of accelerator tensors to ``native_dropout``; returns the undo."""
    patches = Patches()
    functions: Any = torch._VF
    original = functions.dropout

    def dropout(input: Any, p: float, train: bool) -> Any:
        fused = isinstance(input, VirtualTensor) and input.device.type != "cpu" and train and 0 < p < 1
        return torch.native_dropout(input, p, True)[0] if fused and input.numel() else original(input, p, train)

    patches.set(functions, "dropout", dropout)
    patches.set(torch, "dropout", dropout)
    return patches.undo
