"""``torch.jit.script`` of a function: the function is run as the Python that it is.

TorchScript knows torch's functions by their identity, and refuses a function that calls one that stands replaced here.
The operators are the same either way. Modules and classes are still compiled: what is saved of them has to be.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import torch

from gonogo.virtual.patching import Patches


def install() -> Callable[[], None]:
    """Leave functions uncompiled; returns the undo."""
    patches = Patches()
    script = torch.jit.script

    @functools.wraps(script)
    def script_(obj: Any, *args: Any, **options: Any) -> Any:
        return obj if inspect.isfunction(obj) else script(obj, *args, **options)

    patches.set(torch.jit, "script", script_)
    return patches.undo
