"""Dropout as accelerators run it: one fused kernel that keeps a boolean mask (a bit an element on Ascend).

ATen's own choice asks ``is_cuda``, which C++ answers with no for a virtual tensor, and then keeps a mask of the
input's dtype.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from gonogo.virtual.patching.patches import Patches
from gonogo.virtual.tensor import VirtualTensor


def install() -> Callable[[], None]:
    """Send dropout of accelerator tensors to ``native_dropout``; returns the undo."""
    patches = Patches()
    functions: Any = torch._VF
    original = functions.dropout

    def dropout(input: Any, p: float, train: bool) -> Any:
        fused = isinstance(input, VirtualTensor) and input.device.type != "cpu" and train and 0 < p < 1
        if not fused or not input.numel():
            return original(input, p, train)
        if input.device.type == "npu":
            return torch.ops.npu._npu_dropout(input, p)[0]
        return torch.native_dropout(input, p, True)[0]

    patches.set(functions, "dropout", dropout)
    patches.set(torch, "dropout", dropout)
    return patches.undo
