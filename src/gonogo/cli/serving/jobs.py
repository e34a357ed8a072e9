"""Jobs of a server: ``gonogo`` subprocesses that can be awaited, polled and ended.

A job is a process because commands need one of their own: they change its working directory, end it, rehearse in it.
Their output is read from a file when they have ended; the lines of their stderr are their progress.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any
from uuid import uuid4

import anyio
import msgspec

from gonogo.cli.serving.folders import Folders, RequestRefused
from gonogo.evidence.paths import ALLOWED_FOLDERS_VARIABLE
from gonogo.finding import translated
from gonogo.prepare.prompts import PROGRESS, PROGRESS_STATES, STATE

MAX_RUNNING = 4
_MAX_KEPT_JOBS = 40
_MAX_ERROR_CHARS = 2000
_MAX_LINES = 100
_MAX_STATES = 5000
"""Maximum number of states kept, about 40 minutes of a rehearsal; later ones are not drawn."""
_GRACE_SECONDS = 5.0
"""Seconds that a command has to end after SIGTERM."""
_MAX_RESULT_BYTES = 64 << 20
"""Maximum size of a result in bytes; a larger one is dropped."""


class Job:
    """A running or finished command. ``doing`` is its last progress message; ``status`` is None while it runs."""

    def __init__(
        self, words: Sequence[str], folder: Path, folders: Folders, given: bytes = b"", also_below: Sequence[Path] = ()
    ) -> None:
        self.id = uuid4().hex[:12]
        self.tool = words[0]
        self.folder = folder
        self.begun = time.time()
        self.doing = ""
        self.result = ""
        self.complaint = ""
        self.states: list[dict[str, Any]] = []
        """The states of the ranks in a running rehearsal, in order of time."""
        self.status: int | None = None
        self.cancelled = False
        self._begun = time.monotonic()
        self._ended: float | None = None
        self._read = 0
        self._part = b""
        self._others: list[str] = []
        self._out: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        below = os.pathsep.join(str(root) for root in (*folders.roots, *also_below))
        with tempfile.TemporaryFile() as stdin:
            stdin.write(given)
            stdin.seek(0)
            self._process = subprocess.Popen(
                [sys.executable, "-m", "gonogo", *words],
                cwd=folder,
                stdin=stdin,
                stdout=self._out,
                stderr=self._errors,
                env={**os.environ, ALLOWED_FOLDERS_VARIABLE: below, PROGRESS: PROGRESS_STATES, "NO_COLOR": "1"},
                start_new_session=True,
            )

    @property
    def seconds(self) -> float:
        """How long it has been running, or ran."""
        return (self._ended or time.monotonic()) - self._begun

    def poll(self) -> bool:
        """Read new output; True if the process has ended."""
        if self._ended is not None:
            return True
        status = self._process.poll()
        self._read_stderr_lines(last=status is not None)
        if status is None:
            return False
        self.status, self._ended = status, time.monotonic()
        self.complaint = "\n".join(self._others)[-_MAX_ERROR_CHARS:]
        if os.fstat(self._out.fileno()).st_size <= _MAX_RESULT_BYTES:
            self._out.seek(0)
            self.result = self._out.read().decode("utf-8", "replace")
        self._out.close()
        self._errors.close()
        return True

    def _read_stderr_lines(self, *, last: bool) -> None:
        """Read new lines of stderr; an incomplete last line is kept until it is complete."""
        while part := os.pread(self._errors.fileno(), 1 << 16, self._read):  # leaves the child's file offset alone
            self._read += len(part)
            self._part += part
        whole, _, self._part = (self._part + b"\n" if last else self._part).rpartition(b"\n")
        for line in whole.decode("utf-8", "replace").splitlines():
            if line.startswith(f"{PROGRESS}: "):
                self.doing = line[len(PROGRESS) + 2 :]
            elif line.startswith(f"{STATE}: "):
                self._parse_state_line(line[len(STATE) + 2 :])
            elif line:
                self._others.append(line[-_MAX_ERROR_CHARS:])
        del self._others[:-_MAX_LINES]

    def _parse_state_line(self, text: str) -> None:
        with contextlib.suppress(msgspec.DecodeError):
            state = msgspec.json.decode(text.encode("utf-8", "replace"))
            if isinstance(state, dict) and len(self.states) < _MAX_STATES:
                self.states.append(state)

    async def wait(self, seconds: float) -> bool:
        """Whether the job ends within the given number of seconds."""
        deadline = time.monotonic() + seconds
        while not self.poll():
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            await anyio.sleep(min(0.05, left))
        return True

    async def end(self) -> None:
        """End the job and its child processes, with SIGTERM first."""
        if self.poll():
            return
        self.cancelled = True
        self._signal_process_group(signal.SIGTERM)
        with anyio.CancelScope(shield=True):
            if not await self.wait(_GRACE_SECONDS):
                self.kill()

    def kill(self) -> None:
        """Kill the job immediately."""
        self._signal_process_group(signal.SIGKILL)
        self._process.wait()
        self.poll()

    def _signal_process_group(self, number: int) -> None:
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)


class Jobs:
    """The jobs of a server; only the latest are kept."""

    def __init__(self, folders: Folders) -> None:
        self.folders = folders
        self._jobs: dict[str, Job] = {}

    def start(self, words: Sequence[str], folder: Path, stdin: bytes = b"", also_below: Sequence[Path] = ()) -> Job:
        """Start a command in a folder with the given stdin. Raises RequestRefused if too many jobs are running."""
        running = [job for job in self._jobs.values() if not job.poll()]
        if len(running) >= MAX_RUNNING:
            names = ", ".join(f"{job.id} ({job.tool})" for job in running)
            raise RequestRefused(
                translated("{count} jobs are running ({names}): wait for one to finish, or cancel it").format(
                    count=len(running), names=names
                )
            )
        job = Job(words, folder, self.folders, stdin, also_below)
        self._jobs[job.id] = job
        for old in [one for one in self._jobs.values() if one.poll()][: max(0, len(self._jobs) - _MAX_KEPT_JOBS)]:
            del self._jobs[old.id]
        return job

    def find(self, name: str) -> Job:
        """The job with that id. Raises RequestRefused if there is none."""
        job = self._jobs.get(name)
        if job is None:
            raise RequestRefused(
                translated("no job {name}; only the latest {most} are kept").format(
                    name=repr(name), most=_MAX_KEPT_JOBS
                )
            )
        return job

    def all(self) -> list[Job]:
        """The jobs that are kept, the newest last."""
        return list(self._jobs.values())

    def end_all(self) -> None:
        """Kill all jobs that still run."""
        for job in self._jobs.values():
            if not job.poll():
                job.kill()
