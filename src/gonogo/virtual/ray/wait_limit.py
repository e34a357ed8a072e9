"""Limits how long a process waits for another: as long as any of them makes progress, however slow the machine is.

Turns go round in order, so a process that computes for minutes costs the waiting ones only a single round each. A
wait is only given up after many rounds without progress, if every thread of the program is blocked.
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
_GONOGO_RAY_FOLDER = str(Path(__file__).parent)
"""Files in which a waiting thread stands: the modules above, their replacements in this folder, or the turn
scheduler."""


class WaitLimit:
    """The limit of one wait: ``rounds`` rounds and ``seconds`` seconds without any progress."""

    def __init__(self, turn_scheduler: TurnScheduler, rounds: int, seconds: float) -> None:
        self._turns = turn_scheduler
        self._rounds, self._seconds = rounds, seconds
        self._restart()

    def _restart(self) -> None:
        self._taken, self._passed, self._since = self._turns.taken, 0, time.monotonic()

    def is_over(self) -> bool:
        """Count a round, and return True if the limit is reached. To be called in the waiting process's own turn."""
        self._passed += 1
        if self._turns.taken != self._taken or not are_all_threads_waiting():
            self._restart()
        return self._passed >= self._rounds and time.monotonic() - self._since >= self._seconds


def are_all_threads_waiting() -> bool:
    """True if all other threads are blocked; a thread in an unknown place is assumed to be working."""
    own = threading.get_ident()
    return all(_is_waiting(frame) for thread, frame in sys._current_frames().items() if thread != own)


def _is_waiting(frame: Any) -> bool:
    path = frame.f_code.co_filename
    return path in _WAITING_FILES or path.startswith(_GONOGO_RAY_FOLDER)
