"""Where Python itself waits, the others have their turn: locks' conditions, threads, sleep, selectors, ZeroMQ."""

from __future__ import annotations

import selectors
import threading
import time
from collections.abc import Callable
from typing import Any

from gonogo.virtual.hooks.after_import import after_import
from gonogo.virtual.hooks.patching import Patches
from gonogo.virtual.ray.turns import Turns

_SELECTORS = ("EpollSelector", "PollSelector", "SelectSelector", "KqueueSelector")
_SOCKET_METHODS = ("recv", "send", "recv_multipart", "send_multipart", "poll")
_BUSY = 16
"""A loop that never waits hands its turn on after so many rounds."""


def install(patches: Patches, turns: Turns) -> None:
    """Put it in place."""

    def waiting(owner: Any, name: str) -> None:
        original = getattr(owner, name)

        def wait(*args: Any, **kwargs: Any) -> Any:
            if turns.mine is None:
                return original(*args, **kwargs)
            with turns.away():
                return original(*args, **kwargs)

        wait.__name__ = name
        patches.set(owner, name, wait)

    waiting(threading.Condition, "wait")
    waiting(threading.Thread, "join")
    waiting(time, "sleep")
    for name in _SELECTORS:
        if hasattr(selectors, name):
            _selecting(patches, turns, getattr(selectors, name))

    def zeromq(module: Any) -> None:
        for name in _SOCKET_METHODS:
            if name in vars(module.Socket) or hasattr(module.Socket, name):
                waiting(module.Socket, name)

    patches.on_undo(after_import("zmq.sugar.socket", zeromq))


def _selecting(patches: Patches, turns: Turns, owner: Any) -> None:
    original: Callable[..., Any] = owner.select
    rounds = [0]

    def select(self: Any, timeout: float | None = None) -> Any:
        if turns.mine is None:
            return original(self, timeout)
        rounds[0] += 1
        if timeout is not None and timeout <= 0 and rounds[0] % _BUSY:
            return original(self, timeout)
        if timeout is not None and timeout <= 0:
            with turns.away():
                pass
            return original(self, timeout)
        while True:  # asked often, so that a loop without an event learns of the rehearsal's end
            short = 0.5 if timeout is None else min(timeout, 0.5)
            with turns.away():
                found = original(self, short)
            if found or timeout is not None:
                return found

    patches.set(owner, "select", select)
