"""Tracks which random states a program reads (to save them) and which it sets."""

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


def install(on_get: Told, on_set_state: Told) -> Callable[[], None]:
    """Follow the generators of Python, NumPy, torch's CPU and its accelerators; returns the undo."""
    patches = Patches()
    _patch_state_function(patches, random, "getstate", "python", on_get, None)
    _patch_state_function(patches, random, "setstate", "python", None, on_set_state)
    for module in (torch, torch.random):
        _patch_state_function(patches, module, "get_rng_state", "torch", on_get, None)
        _patch_state_function(patches, module, "set_rng_state", "torch", None, on_set_state)
    for module in (torch.cuda, torch.cuda.random):
        for suffix in ("", "_all"):
            _patch_state_function(patches, module, f"get_rng_state{suffix}", "accelerator", on_get, None)
            _patch_state_function(patches, module, f"set_rng_state{suffix}", "accelerator", None, on_set_state)

    def patch_numpy_random(module: ModuleType) -> None:
        _patch_state_function(patches, module, "get_state", "numpy", on_get, None)
        _patch_state_function(patches, module, "set_state", "numpy", None, on_set_state)

    patches.on_undo(after_import("numpy.random", patch_numpy_random))
    return patches.undo


def _patch_state_function(
    patches: Patches, owner: Any, name: str, kind: str, on_get: Told | None, on_set_state: Told | None
) -> None:
    original = getattr(owner, name, None)
    if original is None:
        return

    @functools.wraps(original)
    def call_and_report_state(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        if on_get is not None:
            _report_state(on_get, kind, result)
        if on_set_state is not None and args:
            _report_state(on_set_state, kind, args[0])
        return result

    patches.set(owner, name, call_and_report_state)


def _report_state(report_state: Told, kind: str, state: Any) -> None:
    """Report the states of several accelerators one by one."""
    for one in state if kind == "accelerator" and isinstance(state, list | tuple) else [state]:
        digest = hashlib.sha256()
        _update_digest(digest, one)
        report_state(kind, digest.hexdigest()[:16])


def _update_digest(digest: Any, value: Any) -> None:
    if isinstance(value, VirtualTensor):
        known = VirtualTensor.virtual_mode.known_values(value)
        digest.update(repr(known.tolist() if known is not None else "?").encode())
    elif isinstance(value, torch.Tensor):
        digest.update(repr(value.tolist()).encode())
    elif isinstance(value, dict):
        _update_digest(digest, list(value.values()))
    elif isinstance(value, list | tuple):
        for item in value:
            _update_digest(digest, item)
    elif hasattr(value, "tobytes"):
        digest.update(repr(value.tolist()).encode())
    else:
        digest.update(repr(value).encode())
