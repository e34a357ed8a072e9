"""Storages of virtual tensors, as the program sees them: an address of their own, and the virtual device.

Libraries tell shared tensors by ``untyped_storage().data_ptr()``; to C++ all virtual storages lie at 0 on ``meta``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from gonogo.virtual.patching.patches import Patches


def install() -> Callable[[], None]:
    """Have ``torch.UntypedStorage`` answer for virtual tensors; returns the undo."""
    patches = Patches()
    real_pointer: Any = torch.UntypedStorage.data_ptr
    real_device: Any = torch.UntypedStorage.device
    real_resize: Any = torch.UntypedStorage.resize_

    def data_ptr(self: Any) -> int:
        virtual = self.__dict__.get("virtual")
        return int(virtual[0].address if virtual is not None else real_pointer(self))

    def device(self: Any) -> torch.device:
        virtual = self.__dict__.get("virtual")
        return virtual[1] if virtual is not None else real_device.__get__(self)  # type: ignore[no-any-return]

    def resize_(self: Any, size: int) -> Any:
        """As FSDP frees and makes its gathered parameters again."""
        real_resize(self, size)
        virtual = self.__dict__.get("virtual")
        if virtual is not None and virtual[0].nbytes != size:
            virtual[0].resize(size)
        return self

    patches.set(torch.UntypedStorage, "data_ptr", data_ptr)
    patches.set(torch.UntypedStorage, "resize_", resize_)
    patches.set(torch.UntypedStorage, "device", property(device))
    return patches.undo
