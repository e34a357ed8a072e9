"""Which random states a program asks for, in order to save them, and which it sets."""

from __future__ import annotations

import functools
import hashlib
import random
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

from gonogo.virtual.patching.after_import import after_import
from gonogo.virtual.patching.patches import Patches
from gonogo.virtual.tensor import VirtualTensor

Told = Callable[[str, str], None]
"""(generator, digest of its state)."""


def install(got: Told, was_set: Told) -> Callable[[], None]:
    """Follow the generators of Python, NumPy, torch's CPU and its accelerators; returns the undo."""
    patches = Patches()
    _follow(patches, random, "getstate", "python", got, None)
    _follow(patches, random, "setstate", "python", None, was_set)
    for module in (torch, torch.random):
        _follow(patches, module, "get_rng_state", "torch", got, None)
        _follow(patches, module, "set_rng_state", "torch", None, was_set)
    for module in (torch.cuda, torch.cuda.random):
        for suffix in ("", "_all"):
            _follow(patches, module, f"get_rng_state{suffix}", "accelerator", got, None)
            _follow(patches, module, f"set_rng_state{suffix}", "accelerator", None, was_set)

    def numpy(module: ModuleType) -> None:
        _follow(patches, module, "get_state", "numpy", got, None)
        _follow(patches, module, "set_state", "numpy", None, was_set)

    patches.on_undo(after_import("numpy.random", numpy))
    return patches.undo


def _follow(patches: Patches, owner: Any, name: str, kind: str, got: Told | None, was_set: Told | None) -> None:
    original = getattr(owner, name, None)
    if original is None:
        return

    @functools.wraps(original)
    def followed(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        if got is not None:
            _tell(got, kind, result)
        if was_set is not None and args:
            _tell(was_set, kind, args[0])
        return result

    patches.set(owner, name, followed)


def _tell(told: Told, kind: str, state: Any) -> None:
    """Of the states of several accelerators each is one."""
    for one in state if kind == "accelerator" and isinstance(state, list | tuple) else [state]:
        digest = hashlib.sha256()
        _feed(digest, one)
        told(kind, digest.hexdigest()[:16])


def _feed(digest: Any, value: Any) -> None:
    if isinstance(value, VirtualTensor):
        known = VirtualTensor.virtual_mode.known_values(value)
        digest.update(repr(known.tolist() if known is not None else "?").encode())
    elif isinstance(value, torch.Tensor):
        digest.update(repr(value.tolist()).encode())
    elif isinstance(value, dict):
        _feed(digest, list(value.values()))
    elif isinstance(value, list | tuple):
        for item in value:
            _feed(digest, item)
    elif hasattr(value, "tobytes"):
        digest.update(repr(value.tolist()).encode())
    else:
        digest.update(repr(value).encode())
