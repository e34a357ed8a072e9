"""Trackers that report over the network: they are there, and report to nobody, whatever mode the program asks for.

Variables (``WANDB_MODE=disabled``) say so too, but an argument of ``init`` wins over them: ms-swift's callback hands
SwanLab ``mode="cloud"``, which from 0.9 on is an error where nobody has logged in.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

from gonogo.virtual.patching.after_import import after_import
from gonogo.virtual.patching.patches import Patches

_TRACKERS = ("swanlab", "wandb")


def install() -> Callable[[], None]:
    """Have each tracker's ``init`` disabled, and its ``login`` answer as one that succeeded; returns the undo."""
    patches = Patches()
    for name in _TRACKERS:
        patches.on_undo(after_import(name, functools.partial(_disable, patches)))
    return patches.undo


def _disable(patches: Patches, module: ModuleType) -> None:
    begin = getattr(module, "init", None)
    if begin is None:  # a folder of that name, which runs leave behind
        return

    @functools.wraps(begin)
    def init(*args: Any, **kwargs: Any) -> Any:
        return begin(*args, **{**kwargs, "mode": "disabled"})

    patches.set(module, "init", init)
    if hasattr(module, "login"):
        patches.set(module, "login", lambda *_args, **_kwargs: True)
