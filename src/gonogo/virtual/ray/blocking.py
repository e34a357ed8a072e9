"""Hands over the turn when Python blocks: in condition variables, threads, sleep, selectors, ZeroMQ."""

from __future__ import annotations

import os
import selectors
import threading
import time
import zlib
from collections.abc import Callable
from typing import Any

from gonogo.virtual.patching.after_import import after_import
from gonogo.virtual.patching.patches import Patches
from gonogo.virtual.ray.turns import TurnScheduler

_SELECTORS = ("EpollSelector", "PollSelector", "SelectSelector", "KqueueSelector")
_SOCKET_METHODS = ("recv", "send", "recv_multipart", "send_multipart", "poll")
_POLLS_PER_YIELD = 16
"""A polling loop hands over its turn once per this number of iterations."""


def install(patches: Patches, turn_scheduler: TurnScheduler) -> None:
    """Patch the blocking functions."""

    def give_up_turn_during(owner: Any, name: str) -> None:
        original = getattr(owner, name)

        def call_without_turn(*args: Any, **kwargs: Any) -> Any:
            if turn_scheduler.current_process is None:
                return original(*args, **kwargs)
            with turn_scheduler.without_turn():
                return original(*args, **kwargs)

        call_without_turn.__name__ = name
        patches.set(owner, name, call_without_turn)

    _patch_conditions(patches, turn_scheduler)
    give_up_turn_during(threading.Thread, "join")
    give_up_turn_during(time, "sleep")
    for name in _SELECTORS:
        if hasattr(selectors, name):
            _patch_selector(patches, turn_scheduler, getattr(selectors, name))

    def patch_zeromq(module: Any) -> None:
        for name in _SOCKET_METHODS:
            if name in vars(module.Socket) or hasattr(module.Socket, name):
                give_up_turn_during(module.Socket, name)
        for name in ("bind", "connect", "unbind", "disconnect"):
            _use_abstract_sockets(patches, module.Socket, name)

    patches.on_undo(after_import("zmq.sugar.socket", patch_zeromq))


def _patch_conditions(patches: Patches, turn_scheduler: TurnScheduler) -> None:
    """Patch condition variables, on which events, queues and futures are based, and the start of threads.

    ``Thread.start`` waits with locks held, so it keeps the turn. A condition's lock is released until the turn is
    back, since the process that has the turn may need the lock first.
    """
    wait_, start_ = threading.Condition.wait, threading.Thread.start

    def wait(self: Any, timeout: float | None = None) -> bool:
        if turn_scheduler.current_process is None or (timeout is not None and timeout <= 0):
            return wait_(self, timeout)
        state: Any = None
        held = True
        try:
            with turn_scheduler.without_turn():
                answer = wait_(self, timeout)
                state, held = self._release_save(), False
        finally:
            if not held:
                self._acquire_restore(state)
        return answer

    def start(self: Any) -> None:
        with turn_scheduler.keeping_turn():
            start_(self)

    patches.set(threading.Condition, "wait", wait)
    patches.set(threading.Thread, "start", start)


def _use_abstract_sockets(patches: Patches, owner: Any, name: str) -> None:
    """Use Linux's abstract sockets for ``ipc://`` addresses, so that a rehearsal leaves no socket files."""
    original = getattr(owner, name)

    def call_with_abstract_address(self: Any, addr: Any, *rest: Any, **more: Any) -> Any:
        if isinstance(addr, str) and addr.startswith("ipc://") and not addr.startswith("ipc://@"):
            addr = f"ipc://@gonogo-{os.getpid()}-{zlib.crc32(addr.encode())}"
        return original(self, addr, *rest, **more)

    patches.set(owner, name, call_with_abstract_address)


def _patch_selector(patches: Patches, turn_scheduler: TurnScheduler, owner: Any) -> None:
    original: Callable[..., Any] = owner.select
    rounds = [0]

    def select(self: Any, timeout: float | None = None) -> Any:
        if turn_scheduler.current_process is None:
            return original(self, timeout)
        rounds[0] += 1
        if timeout is not None and timeout <= 0 and rounds[0] % _POLLS_PER_YIELD:
            return original(self, timeout)
        if timeout is not None and timeout <= 0:
            with turn_scheduler.without_turn():
                pass
            return original(self, timeout)
        with turn_scheduler.without_turn():
            while True:  # poll, so that a loop without events notices the end of the rehearsal
                found = original(self, 0.5 if timeout is None else timeout)
                if found or timeout is not None or turn_scheduler.ended_by is not None:
                    return found

    patches.set(owner, "select", select)
