"""Looks twice a second whether any thread of the process still goes on.

A process stands still for good if each of the program's threads waits without a time limit for a lock of this process
(on which queues, events, conditions and joins are built), and no other thread and no process that it started is left
that could wake one. Linux tells so much of each thread, so nothing of Python has to be replaced for it. Threads that
wait with a time limit, look again and again, read, or wait for another process are only suspected: whoever they wait
for may yet come.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

from gonogo.finding.waits import StuckKind, WaitingSide
from gonogo.virtual.stack import OURS
from gonogo.virtual.waits.sides import EndedThreads, only_waits_for_work, wait_of
from gonogo.virtual.waits.system_calls import ThreadState, call_of, children, tasks, waits_without_limit

_FOREVER_SECONDS = 2.0
_POLLING_SECONDS = 25.0
_MIN_WAKE_UPS = 3
"""How often a thread that waits with time limits has to have looked in vain."""
_IDLE_THREADS = frozenset({"TMonitor"})
"""Classes of threads that only watch others: tqdm's."""


class WaitWatch:
    """Watches this process; ``work_done`` returns a number that grows while the program computes."""

    def __init__(self, work_done: Callable[[], object]) -> None:
        self.stuck: StuckKind = ""
        self.waits: tuple[WaitingSide, ...] = ()
        """Who waits for whom, once the process is stuck."""
        self.ended = EndedThreads()
        self._work_done = work_done
        self._seen: tuple[object, ...] = ()
        self._since = 0.0
        self._looks = self._ran = 0
        """How often the threads were met where they wait, and how often one of them ran."""
        self._sleeps: dict[Any, int] = {}

    def look(self) -> StuckKind:
        """Look at all threads; returns whether they have all been waiting for some time."""
        frames = sys._current_frames()
        own = [thread for thread in threading.enumerate() if _is_of_program(thread) and thread.ident in frames]
        stacks: dict[Any, FrameType] = {thread: frames[thread.ident] for thread in own if thread.ident is not None}
        calls = {thread: call_of(_native_id(thread)) for thread in own}
        del frames
        if self._only_looked_again(calls):
            return self.stuck
        kind = self._kind(stacks, calls)
        seen = (kind, self._work_done(), *_standing(stacks, exactly=kind == "forever")) if kind else ()
        now = time.monotonic()
        if not kind or seen != self._seen:
            self._seen, self._since, self.stuck, self.waits = seen, now, "", ()
            self._looks = self._ran = 0
            self._sleeps = {thread: call.sleeps for thread, call in calls.items()}
        elif not self.stuck and self._has_waited_long(kind, now - self._since, calls):
            self.waits = tuple(
                wait_of(thread, stack, calls[thread].state, _without(stacks, thread), self.ended)
                for thread, stack in stacks.items()
                if not only_waits_for_work(stack)
            )
            self.stuck = kind
        self._looks += 1
        return self.stuck

    def _only_looked_again(self, calls: dict[Any, ThreadState]) -> bool:
        """Whether a thread that looks again and again was met while it looked, which says nothing else."""
        polls = bool(self._seen) and self._seen[0] == "polling" and self._seen[1] == self._work_done()
        if not polls or self._ran > self._looks / 2 or not any(call.state == "runs" for call in calls.values()):
            return False
        self._ran += 1
        return True

    def _kind(self, stacks: dict[Any, FrameType], calls: dict[Any, ThreadState]) -> StuckKind:
        """How the threads stand still at this moment."""
        if (
            not calls
            or any(call.state == "runs" for call in calls.values())
            or any(map(_is_exchanging, stacks.values()))
        ):
            return ""
        python = set(map(_native_id, threading.enumerate()))
        if any(call_of(task).state == "runs" for task in tasks() if task not in python):
            return ""
        started = children()
        if not all(map(waits_without_limit, started)):
            return ""
        forever = not started and all(call.state == "forever" for call in calls.values())
        if forever and not self.ended.have_failed and not _awaits_signals():
            return "forever"
        return "polling"

    def _has_waited_long(self, kind: StuckKind, seconds: float, calls: dict[Any, ThreadState]) -> bool:
        """Whether the threads have waited long enough, and none of them is in a single long sleep."""
        if kind == "forever":
            return seconds >= _FOREVER_SECONDS
        return seconds >= _POLLING_SECONDS and all(
            call.state != "sleeps" or call.sleeps - self._sleeps.get(thread, call.sleeps) >= _MIN_WAKE_UPS
            for thread, call in calls.items()
        )


def _without(stacks: dict[Any, FrameType], thread: threading.Thread) -> dict[Any, FrameType]:
    return {other: stack for other, stack in stacks.items() if other is not thread}


def _native_id(thread: threading.Thread) -> int:
    """The kernel's number of a thread; Python keeps the one that the main thread had before a fork."""
    return os.getpid() if thread is threading.main_thread() else thread.native_id or 0


def _is_of_program(thread: threading.Thread) -> bool:
    return not getattr(thread, "is_gonogo", False) and type(thread).__name__ not in _IDLE_THREADS


def _standing(stacks: dict[Any, FrameType], *, exactly: bool) -> list[object]:
    """Where the threads stand: in which call exactly, or in which lines outside of Python's own modules."""
    if exactly:
        return [(thread.ident, id(frame), frame.f_lasti) for thread, frame in stacks.items()]
    found: list[object] = []
    for thread, frame in stacks.items():
        at: FrameType | None = frame
        while at is not None and not _is_user_code(at):
            at = at.f_back
        found.append((thread.ident, at and (at.f_code.co_filename, at.f_lineno)))
    return found


def _is_user_code(frame: FrameType) -> bool:
    path = frame.f_code.co_filename
    return not path.startswith(("<", OURS)) and "site-packages" not in path and "/lib/python" not in path


def _is_exchanging(frame: FrameType) -> bool:
    """Whether a thread waits for the other ranks in gonogo's exchange, which knows of it."""
    at: FrameType | None = frame
    for _ in range(8):
        if at is None:
            return False
        if at.f_code.co_name == "_receive_reply" and at.f_code.co_filename.startswith(OURS):
            return True
        at = at.f_back
    return False


def _awaits_signals() -> bool:
    """Whether the program handles a signal itself, so that one could wake its main thread."""
    for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM, signal.SIGCHLD, signal.SIGHUP):
        handler = signal.getsignal(number)
        if callable(handler):
            return True
    return False
