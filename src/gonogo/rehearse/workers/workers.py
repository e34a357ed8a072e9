"""The workers of a rehearsal: one process per rank, as many at once as there are cores, ended at a deadline."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

import msgspec

from gonogo.confinement.untrusted_files import decode_untrusted, read_untrusted
from gonogo.confinement.world import World
from gonogo.evidence.rehearsal.record import Outcome, RankRecord
from gonogo.rehearse.launch.python_start import python_module_command
from gonogo.rehearse.progress import RankStatus, ended_status
from gonogo.rehearse.workers.forking import ConfinedProcess, ForkServer, WorkerStart, fork_server
from gonogo.virtual.protocol.plan import ExchangeAddress, Progress, WorkerPlan

_MAX_BYTES = 48 << 20
_MAX_TAIL_BYTES = 1 << 16
_TRUNCATION_MARK = b"\n... [cut: the program printed more than fits here; its last lines follow] ...\n"


class CappedLogFile:
    """Copies a pipe to a file in a thread; after :data:`_MAX_BYTES` only the last :data:`_MAX_TAIL_BYTES` remain."""

    def __init__(self, pipe: IO[bytes], path: Path) -> None:
        self._pipe = pipe
        self._last = bytearray()
        self._written = 0
        self._cut = False
        self._file = open(path, "wb", buffering=0)  # noqa: SIM115 - closed by the thread
        self._thread = threading.Thread(target=self._copy_output, daemon=True, name=f"log {path.name}")
        self._thread.start()

    def _copy_output(self) -> None:
        with self._file as file:
            while block := os.read(self._pipe.fileno(), 1 << 16):
                self._last += block
                del self._last[:-_MAX_TAIL_BYTES]
                if self._written + len(block) > _MAX_BYTES:
                    self._cut = True
                    continue
                try:
                    file.write(block)
                    self._written += len(block)
                except OSError:  # the disk is full: that must not stop the program
                    self._cut = True
            if self._cut:
                try:
                    file.write(_TRUNCATION_MARK + self._last)
                except OSError:
                    return

    def close(self) -> None:
        """Wait for the end of the pipe, which comes when all processes that write to it have ended."""
        self._thread.join(timeout=5.0)
        if not self._thread.is_alive():
            self._pipe.close()

    def tail(self, lines: int) -> list[str]:
        """The last non-empty lines."""
        text = bytes(self._last).decode("utf-8", "replace")
        return [line for line in text.splitlines() if line.strip()][-lines:]


_POLL_SECONDS = 0.05
# A worker that is told to end writes its record first; one that is stuck in native code is killed.
_WRITE_TIMEOUT_SECONDS = 5.0
_TAIL_LINES = 15


@dataclass(frozen=True)
class Assignment:
    """The specification of one worker.

    The record and the progress are in ``folder``, which the program can write to: its content is untrusted. The plan
    is in ``shown``, which the program can only read. gonogo writes the program's output to ``log``, which no program
    can access.
    """

    plan: WorkerPlan
    python: str
    environment: dict[str, str]
    cwd: str
    folder: Path
    shown: Path
    log: Path
    world: World | None
    """The world in which it runs; None if it is sent to another machine first."""
    line: int | None = None
    """The descriptor of its connection to the exchange."""
    below: tuple[Path, ...] = ()
    """Trees of a launch script's changes, for a world that is created elsewhere."""

    @property
    def plan_file(self) -> Path:
        """The file from which the worker reads its plan."""
        return self.shown / "plan.json"

    @property
    def start(self) -> WorkerStart:
        """How to start its worker."""
        plan = str(self.plan_file)
        command = python_module_command(self.python, "gonogo.virtual", plan, dies_with_parent=True)
        assert self.world is not None
        return WorkerStart(command, plan, self.environment, self.cwd, self.shown, self.world, self.line)

    def connected_to(self, address: ExchangeAddress, line: int | None) -> Assignment:
        """The same worker, connected to the others through an exchange."""
        return replace(self, plan=msgspec.structs.replace(self.plan, exchange=address), line=line)


class RankProcess:
    """One rank's process on this machine."""

    def __init__(self, assignment: Assignment, server: ForkServer | None = None) -> None:
        self.assignment = assignment
        assignment.plan_file.write_bytes(msgspec.json.encode(assignment.plan))
        self.process = ConfinedProcess(assignment.start, server)
        self.log = CappedLogFile(self.process.output, assignment.log)
        self._read_to = 0
        self.progress: Progress | None = None
        self.failure = ""
        """What a first pass ended in, while the second runs."""

    def read_progress(self) -> None:
        """Read the progress that the worker has reported since the last call."""
        with contextlib.suppress(OSError):
            lines = (read_untrusted(self.assignment.plan.progress, start=self._read_to) or b"").splitlines(
                keepends=True
            )
            for line in lines:
                if not line.endswith(b"\n"):
                    break
                self._read_to += len(line)
                with contextlib.suppress(ValueError):
                    self.progress = decode_untrusted(line, Progress)
                    self.failure = self.progress.failure or self.failure

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal to the worker and all processes it started."""
        self.process.signal_group(number)

    def kill(self) -> None:
        """Kill it with all processes it started, and complete its log."""
        self.send_signal(signal.SIGKILL)
        self.process.wait()
        self.log.close()

    def record(self, default_outcome: Outcome) -> RankRecord:
        """The record that it wrote, or else one that says how it ended."""
        self.read_progress()
        plan = self.assignment.plan
        try:
            written = read_untrusted(plan.record)
            if written is not None:
                return decode_untrusted(written, RankRecord)
        except (ValueError, OSError) as error:
            return self._record_without_result("killed", f"its record can't be read: {error}")
        status = self.process.returncode or 0
        how = f"ended by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
        return self._record_without_result(default_outcome, how)

    def _record_without_result(self, outcome: Outcome, exit_description: str) -> RankRecord:
        plan = self.assignment.plan
        doing = self.progress
        tail = self.log.tail(_TAIL_LINES)
        return RankRecord(
            rank=plan.rank,
            local_rank=plan.local_rank,
            device=f"{plan.accelerator.device_type}:{plan.local_rank}",
            outcome=outcome,
            steps=doing.step if doing else 0,
            operators=doing.operators if doing else 0,
            last_activity=f"{doing.phase}, step {doing.step}, {doing.activity}" if doing else "",
            events=[f"the worker wrote no record: {exit_description}", *tail],
        )


def run_workers(
    assignments: Sequence[Assignment], deadline: float, on_progress: Callable[[tuple[RankStatus, ...]], None]
) -> list[RankRecord]:
    """Run the worker of each assignment; returns their records in the same order, whatever happens.

    ``deadline`` is a time of ``time.monotonic``: workers that are still running then are told to end (``timed-out``),
    and those not yet started never start. KeyboardInterrupt ends all of them (``interrupted``) and is not propagated.
    Connected workers wait for each other, so all of them run at once.
    """
    at_once = max(1, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    if any(assignment.plan.exchange is not None for assignment in assignments):
        at_once = len(assignments)
    waiting = list(assignments)
    running: list[RankProcess] = []
    records: dict[int, RankRecord] = {}
    ending: Outcome = "interrupted"
    with _fork_server_for(assignments) as server:
        try:
            while waiting or running:
                while waiting and len(running) < at_once:
                    running.append(RankProcess(waiting.pop(0), server))
                for worker in [worker for worker in running if worker.process.poll() is not None]:
                    running.remove(worker)
                    worker.kill()
                    records[worker.assignment.plan.rank] = worker.record("killed")
                for worker in running:
                    worker.read_progress()
                on_progress(_rank_statuses(assignments, running, records))
                if not waiting and running and all(worker.progress and worker.progress.stuck for worker in running):
                    ending = "stuck"  # nobody is left who could wake them
                    break
                if time.monotonic() > deadline:
                    ending = "timed-out"
                    break
                if running:
                    _wait_briefly(running[0])
        except KeyboardInterrupt:
            ending = "interrupted"
        finally:
            end_all(running, signal.SIGINT if ending == "interrupted" else signal.SIGTERM)
    for worker in running:
        records[worker.assignment.plan.rank] = worker.record(ending)
    for assignment in waiting:
        records[assignment.plan.rank] = record_without_worker(assignment.plan, ending)
    return [records[assignment.plan.rank] for assignment in assignments]


def _fork_server_for(assignments: Sequence[Assignment]) -> contextlib.AbstractContextManager[ForkServer | None]:
    """A fork server for workers that run the same program with the same Python, if it is worthwhile."""
    if not assignments:
        return contextlib.nullcontext()
    first = assignments[0]
    assert first.world is not None
    environments = [assignment.environment for assignment in assignments]
    return fork_server(first.python, environments, first.cwd, first.world)


def _wait_briefly(worker: RankProcess) -> None:
    with contextlib.suppress(subprocess.TimeoutExpired):
        worker.process.wait(_POLL_SECONDS)


def end_all(workers: Sequence[RankProcess], number: signal.Signals) -> None:
    """Let workers write their records, then end them; a second Ctrl-C ends them at once."""
    try:
        for worker in workers:
            worker.process.send_signal(number)
        deadline = time.monotonic() + _WRITE_TIMEOUT_SECONDS
        while time.monotonic() < deadline and any(worker.process.poll() is None for worker in workers):
            time.sleep(_POLL_SECONDS)
    except KeyboardInterrupt:
        pass
    finally:
        for worker in workers:
            worker.kill()


def record_without_worker(plan: WorkerPlan, outcome: Outcome) -> RankRecord:
    """The record of a rank whose worker never ran."""
    return RankRecord(
        rank=plan.rank,
        local_rank=plan.local_rank,
        device=f"{plan.accelerator.device_type}:{plan.local_rank}",
        outcome=outcome,
        events=["the worker was not started"],
    )


def _rank_statuses(
    assignments: Sequence[Assignment], running_workers: Sequence[RankProcess], records: dict[int, RankRecord]
) -> tuple[RankStatus, ...]:
    progress = {worker.assignment.plan.rank: worker.progress for worker in running_workers}
    failures = {worker.assignment.plan.rank: worker.failure for worker in running_workers}
    statuses = []
    for assignment in assignments:
        rank = assignment.plan.rank
        if rank in records:
            statuses.append(ended_status(records[rank]))
        elif rank in progress:
            statuses.append(RankStatus(rank, "running", progress[rank], failures[rank]))
        else:
            statuses.append(RankStatus(rank, "waiting"))
    return tuple(statuses)
