"""What a program forks has its signals as it would without gonogo, whose worker answers two of them itself."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any


def keep_from_children(handlers: dict[signal.Signals, tuple[Any, Any]]) -> None:
    """Have what the program forks answer signals as it would without us: each with its handler, and the one before it.

    A handler of Python's runs between two bytecodes only. A pool's process that is told to end as it comes to wait
    for a lock would never run it, and wait for ever; by the kernel's own way it ends at once. Until it has that way
    back, signals wait.
    """
    masks = threading.local()

    def block() -> None:
        masks.before = signal.pthread_sigmask(signal.SIG_BLOCK, handlers)

    def unblock() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, masks.before)

    def give_back() -> None:
        for number, (ours, before) in handlers.items():
            if signal.getsignal(number) is ours:  # the program may have put its own in its place, which they inherit
                signal.signal(number, signal.SIG_DFL if before is None else before)
        unblock()

    os.register_at_fork(before=block, after_in_child=give_back, after_in_parent=unblock)
