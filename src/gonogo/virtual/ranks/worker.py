"""The worker's main: reads the plan, reports progress, and writes the record in any case."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sys
import threading
import traceback
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from gonogo.evidence.rehearsal.record import Outcome, RankRecord
from gonogo.virtual.failure import main_thread_stack
from gonogo.virtual.protocol.encoding import json_bytes
from gonogo.virtual.protocol.plan import Progress, WorkerPlan
from gonogo.virtual.ranks.session import Session
from gonogo.virtual.tensor import CPU

_PROGRESS_INTERVAL_SECONDS = 0.5
TRACE_AUTOGRAD_VARIABLE = "GONOGO_TRACE_AUTOGRAD"


def main(plan_path: str) -> NoReturn:
    """Rehearse one rank according to the plan; exits with status 0 if a record was written."""
    plan = msgspec.json.decode(Path(plan_path).read_bytes(), type=WorkerPlan)
    if os.environ.get(TRACE_AUTOGRAD_VARIABLE):
        # The other ranks have ended: this run only finds where the failing node was created.
        plan = msgspec.structs.replace(plan, trace_autograd=True, exchange=None, trace="")
    random.seed(plan.rank)  # in the real run, nothing seeds it equally on all ranks
    status = 70
    try:
        session = Session(plan)
        _write_on_signal(session)
        stop = _report_progress(session)
        with session:
            record = session.run()
        stop()
        _write_trace(session)
        if session.should_trace_autograd(record):
            os.environ[TRACE_AUTOGRAD_VARIABLE] = "1"
            sys.stdout.flush()
            sys.stderr.flush()
            write_record(plan, record)
            _report_failure(session, record)
            os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
        if record.failure is not None:
            print(
                session.raw_traceback if os.environ.get("GONOGO_DEBUG") else record.failure.traceback, file=sys.stderr
            )
        if not (plan.trace_autograd and record.failure is None and os.path.exists(plan.record)):
            write_record(plan, record)  # otherwise it succeeded without the other ranks: keep the first run's record
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(status)  # skip exit handlers (loggers, process groups), which may wait for things that don't exist


def write_record(plan: WorkerPlan, record: RankRecord) -> None:
    """Write the record atomically."""
    _write_atomically(plan.record, json_bytes(record))


def _write_trace(session: Session) -> None:
    """Write the event trace, if one was requested."""
    if session.recorder is not None:
        _write_atomically(session.plan.trace, session.recorder.encode())


def _write_atomically(target: str, data: bytes) -> None:
    partial = f"{target}.partial"
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        left = memoryview(data)
        while left:
            left = left[os.write(descriptor, left) :]
    finally:
        os.close(descriptor)
    os.replace(partial, target)


def _write_on_signal(session: Session) -> None:
    """On SIGTERM (timeout) and SIGINT (Ctrl-C), write the record so far, with the program's current stack."""

    def write_record_and_exit(number: int, frame: Any) -> None:
        outcome: Outcome = "timed-out" if number == signal.SIGTERM else "interrupted"
        if outcome == "timed-out" and session.watch.stuck:
            outcome = "stuck"
        record = session.record(outcome)
        record.stuck, record.waits = session.watch.stuck, list(session.watch.waits)
        stack = list(main_thread_stack())
        record.events.append("the program was at: " + " < ".join(f"{f.path}:{f.line}" for f in reversed(stack[-6:])))
        record.stack = stack
        with contextlib.suppress(OSError):
            write_record(session.plan, record)
            _write_trace(session)
        os._exit(0)

    numbers = (signal.SIGTERM, signal.SIGINT)
    own = {number: signal.signal(number, write_record_and_exit) for number in numbers}
    signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)  # Ray blocks SIGINT in its processes and their children
    restore_signals_in_children({number: (write_record_and_exit, before) for number, before in own.items()})


def _report_failure(session: Session, record: RankRecord) -> None:
    """Report the failure at once, since a second pass follows that takes as long as the first."""
    if record.failure is not None:
        _append_progress(
            session, msgspec.structs.replace(_progress_of(session), failure=record.failure.one_line_summary())
        )


def _progress_of(session: Session) -> Progress:
    device = session.memory.devices.get(session.device)
    host = session.memory.devices.get(CPU)
    return Progress(
        rank=session.plan.rank,
        phase=session.life.phase,
        step=session.life.step,
        operators=session.mode.operators,
        device_bytes=device.live if device else 0,
        host_bytes=host.live if host else 0,
        activity=session.life.describe(session.modules.current_path),
        stuck=bool(session.watch.look()),
    )


def _append_progress(session: Session, line: Progress) -> None:
    with contextlib.suppress(OSError):
        descriptor = os.open(session.plan.progress, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.write(descriptor, json_bytes(line) + b"\n")
        os.close(descriptor)


def _report_progress(session: Session) -> Any:
    """Append a progress line twice a second, from a separate thread."""
    ended = threading.Event()

    def report_until_ended() -> None:
        while not ended.wait(_PROGRESS_INTERVAL_SECONDS):
            _append_progress(session, _progress_of(session))

    thread = threading.Thread(target=report_until_ended, daemon=True, name="gonogo-progress")
    thread.is_gonogo = True  # type: ignore[attr-defined]
    thread.start()
    return ended.set


def restore_signals_in_children(handlers: dict[signal.Signals, tuple[Any, Any]]) -> None:
    """Restore the previous signal handlers in processes that the program forks. ``handlers``: (ours, previous) by
    signal.

    Python's handlers only run between bytecodes, so a pool's process that gets a signal just before it waits for a
    lock would never run ours and hang; with the default action it ends at once. Signals are blocked until the
    handlers are restored.
    """
    masks = threading.local()

    def block_signals() -> None:
        masks.before = signal.pthread_sigmask(signal.SIG_BLOCK, handlers)

    def unblock_signals() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, masks.before)

    def restore_handlers() -> None:
        for number, (ours, before) in handlers.items():
            if signal.getsignal(number) is ours:  # the program may have installed its own, which is inherited
                signal.signal(number, signal.SIG_DFL if before is None else before)
        unblock_signals()

    os.register_at_fork(before=block_signals, after_in_child=restore_handlers, after_in_parent=unblock_signals)
