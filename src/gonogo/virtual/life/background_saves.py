"""Saves that the program's own threads write: held until it waits for them, since they may take any time.

In a rehearsal a write takes no time, so a save in the background would always be complete before the program goes on.
"""

from __future__ import annotations

import concurrent.futures
import concurrent.futures._base
import concurrent.futures.thread
import contextlib
import functools
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch.distributed as dist

from gonogo.evidence.rehearsal.lives import BackgroundSave, BackgroundSaveEnd, StateCounter
from gonogo.virtual.patching.patches import Patches

_MOST_STEPS = 3
"""Steps after which a save is taken to be complete."""
_MOST_SECONDS = 20.0
"""Real time, after which it goes on: the program waits for it in some way of its own."""
_SECONDS_TO_WRITE = 3.0
"""Real time that a thread gets at the program's end to come to what it writes."""
_LOOK_SECONDS = 0.02
_WAITING_FILES = frozenset(
    str(module.__file__)
    for module in (threading, queue, concurrent.futures._base, concurrent.futures.thread)
    if module.__file__
)
_OF_DATA = f"{os.sep}torch{os.sep}utils{os.sep}data{os.sep}"
"""A data loader waits for its own threads."""
_OF_GONOGO = f"{os.sep}gonogo{os.sep}"
_STARTS = ("start", "submit")
"""Functions that wait only until a thread runs."""


@dataclass(frozen=True)
class ProgramMoment:
    """What the program had done when it began something in the background."""

    place: str
    step: int
    batches: int
    counters: tuple[StateCounter, ...]
    random_states: dict[str, list[str]]


@dataclass
class _Task:
    """Something that the program does in a thread; a save, once it writes."""

    begun: ProgramMoment
    thread: threading.Thread | None = None
    """The thread that was started for it; None for one of an executor's, for which Python waits at its end."""
    needs_group: bool = False
    """Whether it calls collectives, as far as that is known."""
    deferred: Callable[[], None] | None = None
    """What writes it, of a save whose collectives have to be called in the main thread."""
    files: list[str] = field(default_factory=list)
    ended: BackgroundSaveEnd | None = None
    steps_meanwhile: int = 0
    error: str = ""
    may_go_on: threading.Event = field(default_factory=threading.Event)
    done: threading.Event = field(default_factory=threading.Event)


class ProgramLeft(SystemExit):
    """Raised in place of ``os._exit``, which would take the rehearsal's record with it."""


class BackgroundSaves:
    """The saves that a program writes in its own threads."""

    def __init__(self, moment: Callable[[], ProgramMoment], step: Callable[[], int]) -> None:
        self._moment, self._step = moment, step
        self._main = threading.main_thread().ident or 0
        self._tasks: list[_Task] = []
        """Those that have begun to write, in order."""
        self._running: list[_Task] = []
        """What was begun and has neither ended nor written."""
        self._own = threading.local()
        self._has_ended = False
        self._is_over = False
        """Whether nothing is to be written any more: the program has been killed."""

    @property
    def task_of_thread(self) -> ProgramMoment | None:
        """When the program began what this thread does; None in its main thread."""
        task = self._current()
        return task.begun if task is not None else None

    @property
    def is_one_under_way(self) -> bool:
        """Whether a save has begun that isn't complete."""
        return any(not task.done.is_set() for task in self._tasks)

    def install(self) -> Callable[[], None]:
        """Note when the program starts threads and tasks; returns the undo."""
        patches = Patches()
        start, leave = threading.Thread.start, os._exit
        submit: Callable[..., Any] = concurrent.futures.ThreadPoolExecutor.submit

        @functools.wraps(start)
        def start_noted(thread: threading.Thread) -> None:
            is_gonogo = getattr(thread, "is_gonogo", False)
            task = None if is_gonogo else self._current() or self._begin(thread)
            if task is not None:
                thread.run = self._run_as(task, thread.run, is_all=task.thread is thread)  # type: ignore[method-assign]
            start(thread)

        def submit_noted(pool: Any, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
            inner = self._current()
            task = inner or self._begin(None)
            done = fn if task is None else self._run_as(task, fn, is_all=inner is None)
            # An executor's worker, which may be started here, runs later tasks as well: it belongs to none.
            before, self._own.task, self._own.starts_worker = inner, None, True
            try:
                return submit(pool, done, *args, **kwargs)
            finally:
                self._own.task, self._own.starts_worker = before, False

        own = os.getpid()

        def leave_noted(status: int) -> None:
            if os.getpid() != own or threading.get_ident() != self._main:
                leave(status)
            raise ProgramLeft(status)

        patches.set(threading.Thread, "start", start_noted)
        patches.set(concurrent.futures.ThreadPoolExecutor, "submit", submit_noted)
        patches.set(os, "_exit", leave_noted)
        return patches.undo

    def _current(self) -> _Task | None:
        return getattr(self._own, "task", None)

    def _begin(self, thread: threading.Thread | None) -> _Task | None:
        if threading.get_ident() != self._main or not self._step() or getattr(self._own, "starts_worker", False):
            return None
        task = _Task(self._moment(), thread)
        self._running = [*(one for one in self._running if not one.done.is_set()), task]
        return task

    def _run_as(self, task: _Task, fn: Callable[..., Any], *, is_all: bool) -> Callable[..., Any]:
        """``fn`` as a part of the task, or all of it."""

        @functools.wraps(fn)
        def run(*args: Any, **kwargs: Any) -> Any:
            before, self._own.task = self._current(), task
            try:
                return fn(*args, **kwargs)
            except BaseException as error:
                task.error = f"{type(error).__name__}: {error}"
                raise
            finally:
                self._own.task = before
                if is_all:
                    task.done.set()

        return run

    # -- holding ------------------------------------------------------------

    def hold(self, file: str) -> None:
        """Wait with writing a file until the program waits for it, begins another save, or has gone on for long."""
        task = self._current()
        if task is None:
            return
        if self._is_over:
            raise SystemExit  # ends the thread, as the kill of the program does
        task.files.append(file)
        if task.may_go_on.is_set():
            return
        if task not in self._tasks:
            self._tasks.append(task)
            self._end_earlier(task)
        seen, until = 0, time.monotonic() + _MOST_SECONDS
        while not task.may_go_on.wait(_LOOK_SECONDS):
            seen = seen + 1 if self._is_main_waiting() else 0
            if seen > 1:
                self._let_go(task, "awaited")
            elif time.monotonic() > until:
                self._let_go(task, "later")
        if self._is_over:
            raise SystemExit  # ends the thread, as the kill of the program does

    def defer(self, fn: Callable[[], Any]) -> concurrent.futures.Future[Any]:
        """A future of ``fn``, which is called where the program waits for it, or where it has to be complete."""
        future = _Deferred()
        task = _Task(self._moment(), None, needs_group=dist.is_initialized())

        def write() -> None:
            try:
                future.set_result(self._run_as(task, fn, is_all=True)())
            except Exception as error:
                future.set_exception(error)

        task.deferred = write
        future.wait_for_save = lambda: self._let_go(task, "awaited")
        if self._step():
            self._tasks.append(task)
            self._end_earlier(task)
        else:
            write()
        return future

    def _end_earlier(self, task: _Task) -> None:
        for other in self._tasks:
            if other.begun.step < task.begun.step and not other.done.is_set():
                self._let_go(other, "overlapped")
                other.done.wait(_MOST_SECONDS)

    def _is_main_waiting(self) -> bool:
        frame = sys._current_frames().get(self._main)
        if frame is None or frame.f_code.co_filename not in _WAITING_FILES:
            return False
        while frame is not None:
            path = frame.f_code.co_filename
            if path in _WAITING_FILES and frame.f_code.co_name in _STARTS:
                return False
            if path not in _WAITING_FILES and _OF_GONOGO not in path:
                return _OF_DATA not in path
            frame = frame.f_back
        return False

    def _let_go(self, task: _Task, why: BackgroundSaveEnd) -> None:
        if not task.may_go_on.is_set():
            task.ended, task.steps_meanwhile = why, self._step() - task.begun.step
            task.may_go_on.set()
            write, task.deferred = task.deferred, None  # which frees what it has written
            if write is not None:
                write()

    def on_step(self) -> None:
        """End what has been held for so many steps; called before a step is counted."""
        for task in self._tasks:
            if self._step() + 1 - task.begun.step >= _MOST_STEPS:
                self._let_go(task, "later")
        self.settle()

    def settle(self) -> None:
        """Wait for saves that go on: so that what is on disk doesn't depend on how fast they are."""
        for task in self._tasks:
            if task.may_go_on.is_set():
                task.done.wait(_MOST_SECONDS)

    @contextlib.contextmanager
    def until_the_end(self) -> Iterator[None]:
        """Run the program to its end, at which Python waits for all threads but daemons."""
        try:
            yield
        except SystemExit as error:
            self._end(lost=isinstance(error, ProgramLeft))
            raise
        self._end(lost=False)

    def _end(self, *, lost: bool) -> None:
        until = time.monotonic() + _SECONDS_TO_WRITE
        while any(not one.done.is_set() and one not in self._tasks for one in self._running):
            if time.monotonic() > until:
                break
            time.sleep(_LOOK_SECONDS)
        for task in self._tasks:
            daemon = task.thread is not None and task.thread.daemon
            group_is_gone = task.needs_group and not dist.is_initialized()
            if (lost or daemon or group_is_gone) and not task.may_go_on.is_set():
                task.ended = "without-group" if group_is_gone else "lost"
                task.steps_meanwhile = self._step() - task.begun.step
            else:
                self._let_go(task, "exit")
        self.settle()

    def finish(self) -> list[BackgroundSave]:
        """What came of each save; those that are held are never written."""
        self._is_over = True
        for task in self._tasks:
            task.may_go_on.set()
        return [
            BackgroundSave(
                task.begun.place, task.begun.step, task.steps_meanwhile, task.ended, tuple(task.files), task.error
            )
            for task in self._tasks
            if task.ended is not None
        ]

    def held_since(self) -> Sequence[int]:
        """The steps at which the saves were begun that are held."""
        return [task.begun.step for task in self._tasks if not task.may_go_on.is_set()]


class _Deferred(concurrent.futures.Future[Any]):
    """A future that is done when the program asks for its result."""

    wait_for_save: Callable[[], None]

    def result(self, timeout: float | None = None) -> Any:
        self.wait_for_save()
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self.wait_for_save()
        return super().exception(timeout)
