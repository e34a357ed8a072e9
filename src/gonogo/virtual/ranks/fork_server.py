"""``python -m gonogo.virtual.ranks.fork_server DESCRIPTOR``: imports torch once, then forks a worker for each rank.

Otherwise, ranks rehearsed together would each import torch into their own memory. A forked worker is in the same
state as one that was started separately: no session exists yet, no other thread runs, and the environment variables
that differ between ranks (see ``rehearse/workers/forking.py``) are not read by torch's import.

The parent sends requests over a packet socket, each with a path (:class:`ForkRequest`) and an output descriptor, and
receives ``started PATH PID`` and ``ended PID STATUS``. The server ends when the socket is closed, and its workers end
with the server.
"""

from __future__ import annotations

import ctypes
import gc
import os
import select
import signal
import socket
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import msgspec

from gonogo.virtual.protocol.plan import EXCHANGE_DESCRIPTOR
from gonogo.virtual.ranks.importing import import_worker

_MAX_PACKET_BYTES = 8192
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG


class ForkRequest(msgspec.Struct, frozen=True):
    """A request to fork a worker."""

    plan: str
    environment: dict[str, str]
    cwd: str
    command: list[str]
    """The equivalent command line, executed again if the worker repeats a failed run."""


class ForkRequestHandler:
    """Forks workers on request, and reports when they start and end."""

    def __init__(self, channel: socket.socket, main: Callable[[str], NoReturn]) -> None:
        self._channel = channel
        self._main = main
        self._woken, self._wakes = os.pipe()
        os.set_blocking(self._woken, False)
        os.set_blocking(self._wakes, False)

    def serve(self) -> None:
        """Serve until the parent closes its end of the socket."""
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wakes)
        while True:
            ready, _, _ = select.select([self._channel.fileno(), self._woken], [], [])
            if self._woken in ready:
                os.read(self._woken, 4096)
                self._report_exits()
            if self._channel.fileno() in ready:
                path, descriptors, _, _ = socket.recv_fds(self._channel, _MAX_PACKET_BYTES, 2)
                if not path:
                    return
                self._start_worker(path.decode(), *descriptors)

    def _report_exits(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            self._channel.send(f"ended {pid} {os.waitstatus_to_exitcode(status)}".encode())

    def _start_worker(self, path: str, output: int, line: int | None = None) -> None:
        in_session, leads_session = os.pipe()
        server = os.getpid()
        pid = os.fork()
        if not pid:
            try:
                os.setsid()
                os.close(leads_session)
                self._become_worker(path, output, line, server)
            finally:
                os._exit(70)
        os.close(leads_session)
        os.read(in_session, 1)  # EOF: the child has called setsid, so its process group can be signalled
        os.close(in_session)
        for descriptor in (output, line):
            if descriptor is not None:
                os.close(descriptor)
        self._channel.send(f"started {pid} {path}".encode())

    def _become_worker(self, path: str, output: int, line: int | None, server: int) -> None:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for descriptor in (self._woken, self._wakes):
            os.close(descriptor)
        self._channel.close()
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, int(signal.SIGKILL))
        if os.getppid() != server:
            return
        start = msgspec.json.decode(Path(path).read_bytes(), type=ForkRequest)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.close(output)
        if line is not None:
            os.dup2(line, EXCHANGE_DESCRIPTOR)
            os.close(line)
        os.environ.clear()
        os.environ.update(start.environment)
        os.chdir(start.cwd)
        _reset_process_state()
        sys.argv = ["gonogo-worker", start.plan]
        sys.orig_argv = start.command
        self._main(start.plan)


def _reset_process_state() -> None:
    """Reset what a process determines once and a fork must not share: the temporary folder, NumPy's random state."""
    tempfile.tempdir = None
    numbers = sys.modules.get("numpy.random")
    if numbers is not None:
        numbers.seed()


def is_alone() -> bool:
    """True if this process has no other threads: a fork would lose them, along with the locks that they hold."""
    return len(os.listdir("/proc/self/task")) == 1


if __name__ == "__main__":
    worker_main = import_worker()
    if is_alone():
        gc.freeze()  # so that garbage collections in workers don't write to shared pages
        with socket.socket(fileno=int(sys.argv[1])) as parent:
            ForkRequestHandler(parent, worker_main).serve()
