"""torchvision where its compiled operators do not load, as its CUDA build beside a torch without CUDA.

Its Python then stops at the import, since it describes operators that nobody has defined. They are defined here,
without a kernel: transforms and models work, and who calls such an operator is told so.
"""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

import torch

from gonogo.virtual import private
from gonogo.virtual.patching.after_import import after_import
from gonogo.virtual.patching.patches import Patches

_OPERATORS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)


def install(patches: Patches) -> None:
    """Define the operators when torchvision has found that its own library does not load."""

    def define(extension: ModuleType) -> None:
        if extension._has_ops() or hasattr(torch.ops.torchvision, "nms"):
            return
        library: Any = torch.library.Library("torchvision", "FRAGMENT")  # type: ignore[no-untyped-call]
        for operator in _OPERATORS:
            library.define(operator)
        patches.on_undo(functools.partial(private.take_back, library))

    patches.on_undo(after_import("torchvision.extension", define))
