"""A short description of a batch: the names, types and shapes of its entries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

_MAX_VALUES = 32


def describe_batch(batch: Any) -> tuple[tuple[str, str], ...]:
    """(name, ``int64 [2, 128]``) of each entry; entries of a list or tuple are named by their index."""
    if isinstance(batch, Mapping):
        entries = [(str(name), value) for name, value in batch.items()]
    elif isinstance(getattr(batch, "data", None), dict):  # BatchEncoding, BatchFeature
        entries = [(str(name), value) for name, value in batch.data.items()]
    elif isinstance(batch, list | tuple):
        entries = [(str(index), value) for index, value in enumerate(batch)]
    else:
        entries = [("0", batch)]
    return tuple((name, _kind_and_size(value)) for name, value in entries[:_MAX_VALUES] if value is not None)


def _kind_and_size(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"
    if isinstance(value, list | tuple):
        return f"{type(value).__name__} of {len(value)}"
    return type(value).__name__
