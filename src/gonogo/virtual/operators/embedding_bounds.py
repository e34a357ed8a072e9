"""Token ids and labels beyond the table that they index: a device-side assert of the real kernel.

Shapes alone don't show it. Where the indices are known, they are compared with the table's rows, as the kernels do
(torch's ``aten/src/ATen/native/cuda``: ``Indexing.cu``, ``NLLLoss2d.cu``, ``Loss.cu``).
"""

from __future__ import annotations

from typing import Any

import torch

from gonogo.virtual.mode import HANDLERS, VirtualMode
from gonogo.virtual.tensor import VirtualTensor
from gonogo.virtual.values import contents

aten = torch.ops.aten
_MAX_INDICES = 1 << 24
"""More indices than that are not looked through."""


def _embedding(mode: VirtualMode, func: Any, args: Any, kwargs: Any) -> Any:
    weight, indices = args[0], args[1]
    known = _known_bounds(indices)
    if known is not None and weight.dim() == 2 and weight.shape[0]:
        low, high = known
        if low < 0 or high >= weight.shape[0]:
            beyond = low if low < 0 else high
            _fail(
                weight, f"`srcIndex < srcSelectDimSize` failed: index {beyond} of a table of {weight.shape[0]} rows",
                "index out of range in self",
            )  # fmt: skip
    return mode.run(mode.operator(func), args, kwargs)


def _loss(mode: VirtualMode, func: Any, args: Any, kwargs: Any) -> Any:
    logits, target = args[0], args[1]
    ignored = args[4] if len(args) > 4 else kwargs.get("ignore_index", -100)
    known = _known_bounds(target, but=ignored)
    classes = logits.shape[1 if logits.dim() > 1 else 0] if logits.dim() else 0
    if known is not None and classes:
        low, high = known
        if low < 0 or high >= classes:
            beyond = low if low < 0 else high
            _fail(
                logits, f"`t >= 0 && t < n_classes` failed: label {beyond} of {classes} classes",
                f"Target {beyond} is out of bounds.",
            )  # fmt: skip
    return mode.run(mode.operator(func), args, kwargs)


def _known_bounds(indices: torch.Tensor, but: int | None = None) -> tuple[int, int] | None:
    """The least and the largest of known indices; None where there are none, or they are not known."""
    if not 0 < indices.numel() <= _MAX_INDICES:
        return None
    values = contents.read(indices) if isinstance(indices, VirtualTensor) else indices
    if values is None or values.device.type != "cpu":
        return None
    if but is not None:
        values = values[values != but]
        if not values.numel():
            return None
    return int(values.min()), int(values.max())


def _fail(tensor: torch.Tensor, assertion: str, cpu_message: str) -> None:
    if tensor.is_cpu:
        raise IndexError(cpu_message)
    raise RuntimeError(f"CUDA error: device-side assert triggered (Assertion {assertion})")


HANDLERS[aten.embedding.default] = _embedding
for _loss_operator in (aten.nll_loss_forward.default, aten.nll_loss2d_forward.default):
    HANDLERS[_loss_operator] = _loss
