"""Turn-taking: the processes of a Ray cluster are threads here, and hand over the turn wherever they would block.

The state of a process (its environment, process groups, devices) is installed when its turn begins. Threads that a
process starts itself have no turn: they run whenever Python schedules them, as usual.
"""

from __future__ import annotations

import _thread
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_POLL_SECONDS = 0.2
"""Interval in seconds at which waiting threads check whether the rehearsal is over."""


class RehearsalEnded(BaseException):
    """Raised in a waiting process once the rehearsal has ended elsewhere."""


def must_keep_turn() -> bool:
    """Whether the process can't hand over its turn: inside ``zero.Init``, DeepSpeed has torch's classes patched."""
    module = sys.modules.get("deepspeed.runtime.zero.partition_parameters")
    return bool(getattr(module, "zero_init_context", 0))


class TurnScheduler:
    """Schedules the processes. ``enter`` is called with each process whose turn begins."""

    def __init__(self, enter_process: Callable[[Any], None]) -> None:
        self._enter = enter_process
        self._mutex = _thread.allocate_lock()
        self._waiting: deque[Any] = deque()
        self._held = False
        self._of_thread = threading.local()
        self.ended_by: BaseException | None = None
        """The error that ended the rehearsal in another process's turn; raised where the driver waits."""
        self.taken = 0
        """Number of turns with progress, not counting mere checks whether a process can continue."""
        self.main: Any = None
        """The driver's process."""

    @property
    def current_process(self) -> Any:
        """The process of this thread, or None."""
        return getattr(self._of_thread, "process", None)

    def join(self, process: Any, is_progress: bool = True) -> None:
        """Make this thread a process; returns when its turn has come."""
        self._of_thread.process = process
        self._of_thread.away = 0
        self._take_turn(is_progress)

    def leave(self) -> None:
        """End this thread's process, and hand over its turn."""
        self._release_turn()
        self._of_thread.process = None

    def _take_turn(self, is_progress: bool = True) -> None:
        gate = None
        with self._mutex:
            if self._held:
                gate = _thread.allocate_lock()
                gate.acquire()
                self._waiting.append(gate)
            self._held = True
        if gate is not None:
            gate.acquire()
        self.taken += is_progress
        self._enter(self.current_process)

    def _release_turn(self) -> None:
        with self._mutex:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._held = False

    @contextmanager
    def without_turn(self, is_progress: bool = True) -> Iterator[None]:
        """Let others run during a blocking call. With ``is_progress``, returning from it is progress."""
        here = self._of_thread
        if self.current_process is None or here.away or must_keep_turn():
            yield
            return
        here.away = 1
        self._release_turn()
        try:
            yield
        finally:
            here.away = 0
            self._take_turn(is_progress)
            self._raise_if_ended()

    @contextmanager
    def as_process(self, process: Any) -> Iterator[None]:
        """Run as another process inside the context: one that this thread's process has started and waits for."""
        here, before = self._of_thread, self.current_process
        here.process = process
        self._enter(process)
        try:
            yield
        finally:
            here.process = before
            self._enter(before)

    @contextmanager
    def keeping_turn(self) -> Iterator[None]:
        """Keep the turn even if Python blocks: for a short wait with a lock held that others need."""
        here = self._of_thread
        if self.current_process is None or here.away:
            yield
            return
        here.away = 1
        try:
            yield
        finally:
            here.away = 0

    def wait(self, lock: Any, timeout: float | None = None, is_progress: bool = True) -> bool:
        """Wait until ``lock`` is released. Returns False on timeout."""
        end = None if timeout is None else time.monotonic() + timeout
        with self.without_turn(is_progress):
            while self.ended_by is None:
                left = _POLL_SECONDS if end is None else min(_POLL_SECONDS, end - time.monotonic())
                if lock.acquire(timeout=max(left, 0.0)):
                    return True
                if end is not None and time.monotonic() >= end:
                    return False
        return False

    def end(self, error: BaseException) -> None:
        """End the rehearsal with this error, whichever process raised it."""
        if self.ended_by is None:
            self.ended_by = error

    def _raise_if_ended(self) -> None:
        error = self.ended_by
        if error is None:
            return
        if self.current_process is self.main:
            self.ended_by = RehearsalEnded()
            raise error
        raise RehearsalEnded
