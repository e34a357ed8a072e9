"""``torch.jit.script`` of a function or class: it is run as the Python that it is, with the same operators.

Modules are still compiled: what is saved of them has to be. TorchScript knows torch's functions by their identity: it
is told of those that stand replaced here, of torch's own namespaces; what is written in Python further down may call
others, which it would refuse.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import torch

from gonogo.virtual import private
from gonogo.virtual.patching.patches import Patches


def install() -> Callable[[], None]:
    """Leave functions and classes uncompiled; returns the undo."""
    patches = Patches()
    script = torch.jit.script

    @functools.wraps(script)
    def script_(obj: Any, *args: Any, **options: Any) -> Any:
        if inspect.isfunction(obj) or (inspect.isclass(obj) and not issubclass(obj, torch.nn.Module)):
            return obj  # of a class, `script` returns the class itself, too
        private.know_replaced_when_scripting()
        return script(obj, *args, **options)

    patches.set(torch.jit, "script", script_)
    return patches.undo
