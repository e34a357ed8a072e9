"""Experiment trackers that report over the network: made available but disabled, whatever mode the program requests.

Environment variables (``WANDB_MODE=disabled``) do the same, but arguments of ``init`` take precedence: ms-swift's
callback passes ``mode="cloud"`` to SwanLab, which since 0.9 is an error without a login.
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
    """Disable each tracker's ``init``, and make its ``login`` succeed; returns the undo."""
    patches = Patches()
    for name in _TRACKERS:
        patches.on_undo(after_import(name, functools.partial(_disable_tracker, patches)))
    return patches.undo


def _disable_tracker(patches: Patches, module: ModuleType) -> None:
    begin = getattr(module, "init", None)
    if begin is None:  # a namespace package: an output folder of that name left by earlier runs
        return

    @functools.wraps(begin)
    def init(*args: Any, **kwargs: Any) -> Any:
        return begin(*args, **{**kwargs, "mode": "disabled"})

    patches.set(module, "init", init)
    if hasattr(module, "login"):
        patches.set(module, "login", lambda *_args, **_kwargs: True)
