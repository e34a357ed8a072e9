"""Threads that the program starts."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from gonogo.virtual import private
from gonogo.virtual.patching.patches import Patches


def install(mode: Any) -> Callable[[], None]:
    """Dispatch modes belong to a thread, and so does how torch builds a tensor of numbers. Returns the undo."""
    patches = Patches()
    run = threading.Thread.run

    def with_mode(thread: threading.Thread) -> None:
        if getattr(thread, "is_gonogo", False):
            run(thread)
            return
        private.lift_only_cpu_tensors()
        with mode:
            run(thread)

    patches.set(threading.Thread, "run", with_mode)
    return patches.undo
