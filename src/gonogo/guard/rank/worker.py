"""The guard of one rank: tracks the training and writes records as things happen."""

from __future__ import annotations

import atexit
import faulthandler
import math
import os
import signal
import sys
import threading
import time
import traceback
from typing import IO, Any

import msgspec

from gonogo.evidence.guarded.files import stack_dump_path
from gonogo.evidence.guarded.records import (
    EndRecord,
    GuardFaultRecord,
    Phase,
    StallEndRecord,
    StallRecord,
    WarningRecord,
)
from gonogo.guard.common import faults, memory
from gonogo.guard.common.collectives import process_group_queues
from gonogo.guard.common.faults import harmless
from gonogo.guard.common.frames import all_threads, main_frame
from gonogo.guard.common.state import RankState
from gonogo.guard.common.writer import RecordWriter
from gonogo.guard.injection import WORKER, GuardOptions, read_options
from gonogo.guard.rank.steps import StepLog
from gonogo.guard.rank.upload import TrackerUploader

_LOSS_CHECK_SECONDS = 0.5  # seconds: on a GPU, the shortest time between two checks of the loss


class PendingLoss:
    """One loss: known at once on the CPU; on a GPU, copied to the host asynchronously."""

    def __init__(self, loss: Any, step: int) -> None:
        self.step = step
        self._taken = time.monotonic()
        self._value: Any = None
        self._event: Any = None
        self._wait = 0.0
        torch = sys.modules["torch"]
        if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
            return
        loss = loss.detach()
        if loss.device.type == "cpu":
            self._value = float(loss)
        elif loss.device.type == "cuda" and not torch.cuda.is_current_stream_capturing():
            self._wait = _LOSS_CHECK_SECONDS
            self._value = torch.empty((), dtype=torch.float32, pin_memory=True)
            self._value.copy_(loss.reshape(()), non_blocking=True)
            self._event = torch.cuda.Event()
            self._event.record()

    def is_due(self) -> bool:
        """Whether it is time to check another loss."""
        return time.monotonic() - self._taken >= self._wait

    def nonfinite_value(self) -> str | None:
        """``nan`` or ``inf`` if the loss has arrived and is not finite; else None."""
        if self._value is None or (self._event is not None and not self._event.query()):
            return None
        value = float(self._value)
        return None if math.isfinite(value) else str(value)


_STALL_MEDIAN_FACTOR = 10
_STALL_LOADING_FACTOR = 5
"""Applies before the first step, where data preparation and loading of weights may take long."""


class StallNotice(msgspec.Struct, frozen=True):
    """A stall: its length so far and how often it was reported before; or, if ``over``, its total length."""

    seconds: float
    again: int = 0
    over: bool = False


class StallWatch:
    """Reports when a rank stalls: first at the limit, then at doubling intervals; and when it continues."""

    def __init__(self, min_seconds: float) -> None:
        self._least = min_seconds
        self._since: float | None = None
        self._reported = 0
        self._next = 0.0

    def due_notice(self, now: float, progress: float, median: float, loading: bool) -> StallNotice | None:
        """The notice that is due now, if any. ``progress``: time of the last progress, on the clock of ``now``."""
        if self._since is not None and progress > self._since:
            before, self._since = self._since, None
            return StallNotice(progress - before, over=True)
        limit = max(self._least, _STALL_MEDIAN_FACTOR * median) * (_STALL_LOADING_FACTOR if loading else 1)
        quiet = now - progress
        if self._since is None:
            if quiet < limit:
                return None
            self._since, self._reported, self._next = progress, 0, limit
        if quiet < self._next:
            return None
        self._next = quiet * 2
        self._reported += 1
        return StallNotice(quiet, self._reported - 1)


TICK_SECONDS = 0.2
"""Seconds between two checks of the watcher thread."""


class Guard(RankState):
    """The guard of one rank. Its methods are called by the hooks; none of them raises or waits for the GPU."""

    def __init__(self, folder: str, options: GuardOptions) -> None:
        super().__init__(options)
        self.folder = folder
        self.joined = False
        """Whether this rank has stated its facts: right before its first step."""
        self.progress = time.monotonic()
        self.steps = StepLog(options.sample_seconds)
        self._memory = memory.MemoryWatch()
        self._warned_of_loss = False
        self._stalls = StallWatch(options.stall_seconds)
        self._loss: Any = None
        self._dump: IO[bytes] | None = None
        self._dumps_faults = self._dumps_end = False
        self._stop = threading.Event()
        self._finished = False
        self._counted = False
        self.trackers = TrackerUploader(self, self.finish)

    # The life of a rank

    @harmless("the rank")
    def begin(self, rank: int | None = None) -> None:
        """Identify this process as a rank, record it, and start the watcher thread."""
        if self.writer is not None:
            return
        if rank is not None:
            self.rank = rank
        self.local_rank = int(os.environ.get("LOCAL_RANK") or os.environ.get("SLURM_LOCALID") or 0)
        os.environ[WORKER] = str(os.getpid())
        self.writer = RecordWriter(self.folder, self.rank)
        if self.writer.broken:
            return
        faults.add_fault_listener(self._record_fault)
        from gonogo.guard.rank.facts import make_start_record

        self.writer.write_now(make_start_record(self.rank, self.local_rank))
        self._dump_stacks_on_signal()
        os.register_at_fork(after_in_child=_after_fork)
        threading.Thread(target=self._watch_loop, name="gonogo", daemon=True).start()

    @harmless("dumps of stacks")
    def _dump_stacks_on_signal(self) -> None:
        """Have faulthandler dump stacks on fatal signals and SIGTERM, even while the rank is blocked in C code."""
        self._dump = open(stack_dump_path(self.folder, self.rank), "wb", buffering=0)  # noqa: SIM115 (lives as the process)
        if not faulthandler.is_enabled():
            self._dumps_faults = True
            faulthandler.enable(self._dump)
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            self._dumps_end = True
            faulthandler.register(signal.SIGTERM, self._dump, all_threads=True, chain=True)

    def forked(self) -> None:
        """Detach a process that was forked off the rank: nothing of it must go into the rank's files."""
        if self.writer is not None:
            self.writer.close()
        # The dump file stays open: otherwise its descriptor could be reused for another file.
        if self._dumps_end:
            faulthandler.unregister(signal.SIGTERM)
        if self._dumps_faults:
            faulthandler.disable()

    @harmless("the end")
    def finish(self) -> None:
        """Record the end of the rank; called when Python exits."""
        error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
        if error is not None:
            self.record_fatal_exception(error)
        if self.writer is None or self._finished:
            return
        self._finished = True
        self._stop.set()
        if error is None:  # no exception: a stall, if there was one, is over
            self.progress = time.monotonic()
            self._check_stall()
        self._look_for_loss()
        self.write_pending_steps()
        reason: Any = "exit" if error is None else "exception"
        status = None if error is None else 1
        self.writer.write_now(EndRecord(time.time(), reason, status, step=self.step, counts=dict(self.ring.counts)))
        self._write_beat()

    # Called by the hooks

    def enter(self, phase: Phase) -> None:
        """Enter another phase of a step."""
        self.phase = self.ring.phase = phase
        self.progress = time.monotonic()

    def record_step(self, step: int) -> None:
        """Record that an optimizer step is done."""
        now = time.monotonic()
        self.step = self.ring.step = step
        self.progress = now
        self.steps.end_step(now)
        if self.steps.sample_due(now):
            self._take_sample(step)
        self.trackers.find_new_trackers()

    @harmless("memory")
    def _take_sample(self, step: int) -> None:
        self.steps.store_sample(step, memory.sample_memory(self.local_rank))

    def before_first_step(self, point: str) -> None:
        """Report this rank's facts and compare them with the other ranks', right before its first step."""
        if self.joined or self.writer is None:
            return
        self.joined = True
        from gonogo.guard.rank.joining import compare_with_other_ranks

        self.enter("init")
        self.trackers.find_new_trackers()
        compare_with_other_ranks(self, point)
        self.progress = time.monotonic()
        self.steps.begin(self.progress)

    @harmless("places of tensors")
    def after_first_step(self) -> None:
        """Record the placement of all tensors after the first step, when the optimizer has its states."""
        if self._counted or self.writer is None:
            return
        self._counted = True
        from gonogo.guard.tensors.census import placement_snapshot

        self.writer.put(placement_snapshot(self.model, self.engine, "first-step"))

    @harmless("the loss")
    def check_loss(self, loss: Any) -> None:
        """Notice a NaN or Inf loss: at once on the CPU; on a GPU when its asynchronous copy has arrived."""
        if self.search is not None:
            self.search.check_loss(loss)

        if self._loss is None or self._loss.is_due():
            self._look_for_loss()  # the previous loss, whose copy has arrived by now
            self._loss = PendingLoss(loss, self.step)

    @harmless("exceptions")
    def record_exception(self, error: BaseException) -> None:
        """Record an exception that leaves a forward, backward or step, and add the guard's context to it."""
        from gonogo.guard.rank.exceptions import note_exception

        if self.writer is not None:
            note_exception(self, error, fatal=False)

    @harmless("exceptions")
    def record_fatal_exception(self, error: BaseException, thread: str = "") -> None:
        """Record an exception that has ended the program (or a thread of it)."""
        from gonogo.guard.rank.exceptions import is_launcher_error, note_exception

        if self.writer is None and not is_launcher_error(error):
            self.begin()  # it failed before any training began
        if self.writer is not None:
            note_exception(self, error, fatal=not thread, thread=thread)

    # The watcher thread

    def _watch_loop(self) -> None:
        while not self._stop.wait(TICK_SECONDS):
            self._check_once()

    @harmless("the watching thread")
    def _check_once(self) -> None:
        if self.writer is None or self.writer.broken:
            self._stop.set()
            return
        self.write_pending_steps()
        self._look_for_loss()
        self._check_stall()
        self._write_beat()
        self.writer.flush()

    def _write_beat(self) -> None:
        if self.writer is not None:
            self.writer.write_heartbeat(self.step, self.phase, self.ring.waiting is not None, self.ring.total)

    @harmless("steps")
    def write_pending_steps(self) -> None:
        """Write the steps that are not recorded yet, with a warning if memory is about to run out."""
        steps = self.steps.take_unreported_steps(self.step, time.monotonic(), include_all=self._stop.is_set())
        if steps is None or self.writer is None:
            return
        record, at = steps
        self.writer.put(record)
        for warning in self._memory.check_after_step(at, record, self.steps.median()):
            self.writer.put(warning)

    @harmless("the loss")
    def _look_for_loss(self) -> None:
        value = self._loss.nonfinite_value() if self._loss is not None else None
        if value is not None and not self._warned_of_loss and self.writer is not None:
            self._warned_of_loss = True
            self.writer.put(WarningRecord(time.time(), "nonfinite-loss", self._loss.step, value=value))

    @harmless("stalls")
    def _check_stall(self) -> None:
        waiting = self.ring.waiting
        newest = self.ring.entries[-1].time if self.ring.entries else 0.0
        progress = max(self.progress, newest)
        loading = self.step == 0 and waiting is None
        median = self.steps.median()
        notice = self._stalls.due_notice(time.monotonic(), progress, median, loading)
        if notice is None or self.writer is None:
            return
        if notice.over:
            self.writer.put(StallEndRecord(time.time(), self.step, round(notice.seconds, 3)))
            return
        from gonogo.guard.tensors.modules import module_of_stack

        self.writer.write_now(
            StallRecord(
                time.time(),
                step=self.step,
                phase=self.phase,
                seconds=round(notice.seconds, 3),
                median=round(median, 3),
                threads=all_threads(),
                collectives=self.ring.collectives(),
                counts=dict(self.ring.counts),
                queues=process_group_queues(),
                module=module_of_stack(self.model, main_frame()),
                again=notice.again,
            )
        )

    def _record_fault(self, part: str, error: BaseException) -> None:
        if self.writer is None or self.writer.broken:
            return
        trace = "".join(traceback.format_exception(type(error), error, error.__traceback__))[-8000:]
        self.writer.put(GuardFaultRecord(time.time(), part, type(error).__name__, str(error)[:2000], trace))


_guard: Guard | None = None


def current() -> Guard | None:
    """The guard of this process, or None if it can't be a rank."""
    return _guard


def prepare_guard(folder: str, *, is_rank: bool, options: GuardOptions | None = None) -> Guard:
    """Prepare a guard in this process, and start it at once if ``is_rank``."""
    global _guard
    if _guard is None:
        options = options or read_options(folder)
        faults.language = options.language
        _guard = Guard(folder, options)
        _hook_exit(_guard)
    if is_rank:
        _guard.begin()
    return _guard


def _hook_exit(guard: Guard) -> None:
    hook, thread_hook = sys.excepthook, threading.excepthook

    def excepthook(kind: type[BaseException], error: BaseException, tb: Any) -> None:
        if _guard is guard:
            guard.record_fatal_exception(error)
        hook(kind, error, tb)

    def thread_excepthook(arguments: Any) -> None:
        if _guard is guard and arguments.exc_value is not None:
            guard.record_fatal_exception(
                arguments.exc_value, arguments.thread.name if arguments.thread is not None else "?"
            )
        thread_hook(arguments)

    def finish_at_exit() -> None:
        if _guard is guard:
            guard.finish()

    sys.excepthook = excepthook
    threading.excepthook = thread_excepthook
    atexit.register(finish_at_exit)


def _after_fork() -> None:
    """Drop the guard in a process that was forked off the rank (a data loader's worker)."""
    global _guard
    guard, _guard = _guard, None
    if guard is not None:
        guard.forked()
