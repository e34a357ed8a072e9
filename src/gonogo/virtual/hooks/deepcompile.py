"""DeepSpeed's compile passes, registered when DeepCompile is first used rather than by every engine.

An engine registers its predefined passes as it is made, and for that imports TorchInductor, which takes longer than
anything else that ``deepspeed.initialize`` does. Nothing reads them but DeepCompile, which imports its backend first.
"""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Callable
from typing import Any

from gonogo.virtual.patching.after_import import after_import
from gonogo.virtual.patching.patches import Patches

_BACKEND = "deepspeed.compile.backend"


def install() -> Callable[[], None]:
    """Have engines put their passes by; returns the undo."""
    patches = Patches()
    waiting: list[Callable[[], object]] = []

    def register_all(_backend: Any) -> None:
        while waiting:
            waiting.pop(0)()

    patches.on_undo(after_import("deepspeed.runtime.engine", lambda module: _put_by(patches, module, waiting)))
    patches.on_undo(after_import(_BACKEND, register_all))
    return patches.undo


def _put_by(patches: Patches, module: Any, waiting: list[Callable[[], object]]) -> None:
    engine_class = module.DeepSpeedEngine
    register = getattr(engine_class, "register_compile_pass", None)
    if register is None or _BACKEND in sys.modules:  # up to DeepSpeed 0.18 the backend is imported with the engine
        return

    @functools.wraps(register)
    def later(engine: Any, *args: Any, **kwargs: Any) -> Any:
        caller = sys._getframe(1).f_code
        predefined = caller.co_name == "__init__" and caller.co_filename == module.__file__
        if predefined and _BACKEND not in sys.modules:
            made = weakref.ref(engine)  # an engine that the program drops must go
            waiting.append(lambda: register(made(), *args, **kwargs))
            return None
        return register(engine, *args, **kwargs)

    patches.set(engine_class, "register_compile_pass", later)
