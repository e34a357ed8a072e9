"""``python -m gonogo.virtual.ranks.fork_server DESCRIPTOR``: imports torch once, then forks a worker for each rank.

Ranks that are rehearsed together would each import the same torch into memory of its own. What a worker finds after
the fork is what it would have made itself: nothing of a session exists yet, no other thread runs, and what differs from
rank to rank in the environment (see ``rehearse/workers/forking.py``) is read by nothing that torch's import runs.

The parent asks over a socket of packets with a path (:class:`ForkRequest`) and the descriptor to print to, and is told
``started PATH PID`` and ``ended PID STATUS``. The socket's end is the server's, and the server's that of its workers.
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
    """A worker as the parent wants it."""

    plan: str
    environment: dict[str, str]
    cwd: str
    command: list[str]
    """What would have started it; run again where the worker repeats a failed run."""


class ForkRequestHandler:
    """Forks as it is asked to, and tells what became of whom."""

    def __init__(self, channel: socket.socket, main: Callable[[str], NoReturn]) -> None:
        self._channel = channel
        self._main = main
        self._woken, self._wakes = os.pipe()
        os.set_blocking(self._woken, False)
        os.set_blocking(self._wakes, False)

    def serve(self) -> None:
        """Until the parent closes its end."""
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
                self._start(path.decode(), *descriptors)

    def _report_exits(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            self._channel.send(f"ended {pid} {os.waitstatus_to_exitcode(status)}".encode())

    def _start(self, path: str, output: int, line: int | None = None) -> None:
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
        os.read(in_session, 1)  # its end: from then on the worker's group can be signalled
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
    """What a process finds out once and is another's here: the temporary folder, random numbers."""
    tempfile.tempdir = None
    numbers = sys.modules.get("numpy.random")
    if numbers is not None:
        numbers.seed()


def is_alone() -> bool:
    """Whether no other thread runs in this process: a fork would leave it, and what it holds, behind."""
    return len(os.listdir("/proc/self/task")) == 1


if __name__ == "__main__":
    worker_main = import_worker()
    if is_alone():
        gc.freeze()  # so that no collection in a worker writes to the pages that all share
        with socket.socket(fileno=int(sys.argv[1])) as parent:
            ForkRequestHandler(parent, worker_main).serve()
