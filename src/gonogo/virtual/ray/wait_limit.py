"""How long a process waits for another one: as long as any of them does something, however slow the machine is.

Turns go round in order, so that a process that computes for minutes costs those that wait a single round each. Only
where many rounds pass in which nobody did anything, and each thread of the program waits, will what is waited for never
come.
"""

from __future__ import annotations

import concurrent.futures.thread
import multiprocessing.connection
import queue
import selectors
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any

from gonogo.virtual.ray.turns import TurnScheduler

_WAITING_FILES = frozenset(
    str(module.__file__)
    for module in (threading, queue, selectors, socket, concurrent.futures.thread, multiprocessing.connection)
)
_OURS = str(Path(__file__).parent)
"""Where threads wait: in the library, by what stands in its place here, or for a turn."""


class WaitLimit:
    """Of one wait. It ends after so many ``rounds``, and so many ``seconds``, in which nothing was done."""

    def __init__(self, turn_scheduler: TurnScheduler, rounds: int, seconds: float) -> None:
        self._turns = turn_scheduler
        self._rounds, self._seconds = rounds, seconds
        self._begin()

    def _begin(self) -> None:
        self._taken, self._passed, self._since = self._turns.taken, 0, time.monotonic()

    def is_over(self) -> bool:
        """Asked after each round, in the waiting process's own turn."""
        self._passed += 1
        if self._turns.taken != self._taken or not are_all_threads_waiting():
            self._begin()
        return self._passed >= self._rounds and time.monotonic() - self._since >= self._seconds


def are_all_threads_waiting() -> bool:
    """Whether each thread but this one waits: one in a place that isn't known is taken to work."""
    own = threading.get_ident()
    return all(_waits(frame) for thread, frame in sys._current_frames().items() if thread != own)


def _waits(frame: Any) -> bool:
    path = frame.f_code.co_filename
    return path in _WAITING_FILES or path.startswith(_OURS)
