"""Functions whose C++ reads an argument's bytes, or writes them, before any operator runs: told in the other form."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from gonogo.virtual.patching.patches import Patches
from gonogo.virtual.tensor import VirtualTensor


def install() -> Callable[[], None]:
    """Hand C++ what it need not read; returns the undo."""
    patches = Patches()
    for owner in (torch, torch.Tensor):
        patches.set(owner, "tensor_split", _split_at_numbers(owner.tensor_split))
    patches.set(torch, "ctc_loss", _lengths_in_tensors(torch.ctc_loss))
    return patches.undo


def _split_at_numbers(original: Callable[..., Any]) -> Callable[..., Any]:
    """``tensor_split`` at the places that a tensor holds."""

    @functools.wraps(original)
    def tensor_split(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        places = args[0] if args else kwargs.get("tensor_indices_or_sections")
        if not isinstance(places, VirtualTensor) or not places.is_cpu or places.dtype != torch.int64:
            return original(tensor, *args, **kwargs)  # C++ says what is wrong with the others
        kwargs.pop("tensor_indices_or_sections", None)
        return original(tensor, places.tolist(), *args[1:], **kwargs)

    return tensor_split


def _lengths_in_tensors(original: Callable[..., Any]) -> Callable[..., Any]:
    """``ctc_loss`` with its lengths as numbers, of which C++ makes a tensor on the device of the loss."""

    @functools.wraps(original)
    def ctc_loss(log_probs: Any, targets: Any, *args: Any, **kwargs: Any) -> Any:
        names = ("input_lengths", "target_lengths")
        lengths = [args[place] if place < len(args) else kwargs.get(name) for place, name in enumerate(names)]
        if not isinstance(log_probs, VirtualTensor) or any(isinstance(one, torch.Tensor) for one in lengths):
            return original(log_probs, targets, *args, **kwargs)
        rest = {name: value for name, value in kwargs.items() if name not in names}
        known_lengths = [torch.tensor(one, device=log_probs.device) for one in lengths]
        return original(log_probs, targets, *known_lengths, *args[2:], **rest)

    return ctc_loss
