"""``python -m gonogo.virtual.measuring.server``: rehearses each job in a fork of a process that imports torch once.

The first line of standard input is a :class:`ServerSettings`; then come jobs (``jobs.MeasurementJob``), one line of
JSON each, of which as many run concurrently as there are cores. Answers are written to the jobs' files, and a line
per finished job (``jobs.JobEnded``) to stdout.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys
import time
import traceback
from collections import deque
from typing import Any, NoReturn, TextIO

import msgspec

from gonogo.evidence.environment.hardware import Accelerator, find_accelerator
from gonogo.evidence.rehearsal.record import bytes_by_category
from gonogo.finding import UserError
from gonogo.virtual.measuring.jobs import JobEnded, Measured, MeasurementJob, PhasePeak


class PhasePeaks:
    """Tracks the peak memory of each phase on one device."""

    def __init__(self, device: Any, lifecycle: Any) -> None:
        self._device = device
        self._life = lifecycle
        self._peaks: dict[str, tuple[int, tuple[int, ...]]] = {}
        self._take = device.count_allocation
        device.count_allocation = self._count_allocation_and_note_peak

    def _count_allocation_and_note_peak(self, cell: Any) -> Any:
        address = self._take(cell)
        live, phase = self._device.live, self._life.phase
        known = self._peaks.get(phase)
        if known is None or live > known[0]:
            self._peaks[phase] = live, tuple(self._device.by_category)
        return address

    def peaks_by_phase(self) -> dict[str, PhasePeak]:
        """The peaks so far."""
        return {
            phase: PhasePeak(live, {name: float(nbytes) for name, nbytes in bytes_by_category(parts).items()})
            for phase, (live, parts) in self._peaks.items()
        }


_POLL_SECONDS = 0.02
_WRITE_SECONDS = 10.0
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG
_BOUNDLESS = 1 << 45
USER_ERROR_STATUS = 2
"""Exit status of a job that ended with a message for the user, the last line of its log."""


class ServerSettings(msgspec.Struct, frozen=True):
    """The first line of input: settings shared by all jobs."""

    accelerator: str
    folder: str
    at_once: int
    trains_by: tuple[str, ...] = ()
    """Modules that all jobs import in addition to transformers and DeepSpeed."""


class _RunningJob:
    def __init__(self, job: MeasurementJob, process: int) -> None:
        self.job = job
        self.process = process
        self.deadline = time.monotonic() + job.timeout
        self.answered = False


def main() -> None:
    """Serve until standard input ends."""
    from gonogo.virtual.ranks.importing import import_worker

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C, and ends this process
    jobs = os.dup(0)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what programs print must not mix with the answers
    first, _, rest = _read_line(jobs).partition(b"\n")
    start = msgspec.json.decode(first, type=ServerSettings)
    import_worker()
    session = _make_session(start)
    with session:
        with session.mode:
            _import_stack(start.trains_by)
        _serve_jobs(session, start, _LineReader(jobs, rest), answers)


def _make_session(start: ServerSettings) -> Any:
    from gonogo.virtual.protocol.plan import WorkerPlan
    from gonogo.virtual.ranks.session import Session

    accelerator: Accelerator = find_accelerator(start.accelerator)
    plan = WorkerPlan(
        program_kind="module",
        program="gonogo.virtual.measuring.program",
        arguments=(),
        rank=0,
        local_rank=0,
        world_size=1,
        local_world_size=1,
        accelerator=accelerator,
        host_bytes=None,
        steps=1,
        scratch=os.path.join(start.folder, "scratch"),
        record=os.path.join(start.folder, "record.json"),
        progress=os.path.join(start.folder, "progress.jsonl"),
        devices=256,
    )
    os.makedirs(plan.scratch, exist_ok=True)
    return Session(plan)


def _import_stack(extra_modules: tuple[str, ...]) -> None:
    """Import what every job needs, so that forked children need not."""
    import importlib

    import deepspeed  # noqa: F401
    import transformers.models.auto.modeling_auto  # noqa: F401
    from transformers import Trainer, TrainingArguments  # noqa: F401

    from gonogo.virtual.synthetic import batch, model, program  # noqa: F401

    for name in extra_modules:
        importlib.import_module(name)


def _read_line(descriptor: int) -> bytes:
    """Read until a line is complete; returns it with whatever followed in the same read."""
    data = b""
    while b"\n" not in data:
        more = os.read(descriptor, 1 << 16)
        if not more:
            break
        data += more
    return data


class _LineReader:
    """Reads lines from a descriptor as they arrive."""

    def __init__(self, descriptor: int, buffered: bytes) -> None:
        self._descriptor = descriptor
        self._read = buffered
        self.ended = False

    def read_lines(self, wait: bool) -> list[bytes]:
        """The complete lines available so far; with ``wait``, block until there is one or the input ends."""
        while b"\n" not in self._read and not self.ended:
            if not select.select([self._descriptor], [], [], None if wait else 0)[0]:
                break
            more = os.read(self._descriptor, 1 << 16)
            self.ended = not more
            self._read += more
        *lines, self._read = self._read.split(b"\n")
        return [line for line in lines if line.strip()]


def _serve_jobs(session: Any, start: ServerSettings, lines: _LineReader, answers: TextIO) -> None:
    waiting: deque[MeasurementJob] = deque()
    running: list[_RunningJob] = []
    while not lines.ended or waiting or running:
        if not lines.ended:
            found = lines.read_lines(wait=not (waiting or running))
            waiting.extend(msgspec.json.decode(line, type=MeasurementJob) for line in found)
        while waiting and len(running) < start.at_once:
            job = waiting.popleft()
            child = os.fork()
            if child == 0:
                _run_job(session, job)
            running.append(_RunningJob(job, child))
        for one in list(running):
            why = _end_reason(one)
            if why is not None:
                running.remove(one)
                answers.write(msgspec.json.encode(JobEnded(one.job.name, why)).decode() + "\n")
                answers.flush()
        if running:
            time.sleep(_POLL_SECONDS)


def _end_reason(running_job: _RunningJob) -> str | None:
    """Why a job has ended, or None while it runs; kills it if it exceeds its timeout."""
    ended, status = os.waitpid(running_job.process, os.WNOHANG)
    if ended:
        if os.path.exists(running_job.job.answer):
            return ""
        if running_job.answered:
            return f"it took longer than {running_job.job.timeout:.0f} s (see --timeout)"
        return f"signal {status & 127}" if status & 127 else f"status {status >> 8}"
    late = time.monotonic() - running_job.deadline
    if late > 0 and not running_job.answered:
        os.kill(running_job.process, signal.SIGTERM)
        running_job.answered = True
    elif late > _WRITE_SECONDS:
        os.kill(running_job.process, signal.SIGKILL)
    return None


def _run_job(session: Any, job: MeasurementJob) -> NoReturn:
    """Run the job in the forked child, as a worker of ``gonogo rehearse`` does."""
    status = 70
    try:
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, int(signal.SIGKILL))
        log = os.open(f"{job.answer}.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.environ["WORLD_SIZE"] = str(job.world_size)
        os.environ["LOCAL_WORLD_SIZE"] = str(job.local_world_size)
        session.plan = msgspec.structs.replace(
            session.plan,
            program=job.program,
            arguments=job.arguments,
            world_size=job.world_size,
            local_world_size=job.local_world_size,
            record=f"{job.answer}.record",
            steps=job.steps,
        )
        session.life.target = job.steps
        _set_capacity(session, job.capacity)
        session.started = time.monotonic()
        answer = _describe_job(job) if job.describe else _measure_session(session)
        _write_answer(job.answer, answer)
        status = 0
    except UserError as error:
        print(error, file=sys.stderr)
        status = USER_ERROR_STATUS
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _set_capacity(session: Any, capacity_bytes: int | None) -> None:
    from gonogo.virtual.memory.caching_allocator import CachingAllocator

    device = session.memory.device(session.device)
    device.allocator = CachingAllocator(
        _BOUNDLESS if capacity_bytes is None else capacity_bytes, device.allocator.settings
    )


def _describe_job(job: MeasurementJob) -> Any:
    from gonogo.virtual.measuring.facts import collect_model_facts

    return collect_model_facts(job.arguments)


def _measure_session(session: Any) -> Measured:

    from gonogo.virtual.ranks import worker
    from gonogo.virtual.tracing import work

    worker._write_on_signal(session)
    work.count_session_work(session)
    peaks = PhasePeaks(session.memory.device(session.device), session.life)
    record = session.run()
    if record.failure is not None:
        print(session.raw_traceback, file=sys.stderr)
    return Measured(record, work.phase_work(), peaks.peaks_by_phase())


def _write_answer(path: str, answer: Any) -> None:
    from pathlib import Path

    Path(f"{path}.partial").write_bytes(msgspec.json.encode(answer))
    os.replace(f"{path}.partial", path)


if __name__ == "__main__":
    main()
