"""Processes of workers: each started separately, or forked by a server that has imported torch for all of them."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import msgspec

from gonogo.confinement.world import World
from gonogo.rehearse.launch.python_start import python_module_command
from gonogo.virtual.protocol.plan import EXCHANGE_DESCRIPTOR

_MAX_PACKET_BYTES = 8192
_RANK_VARIABLES = frozenset(
    {
        "RANK", "LOCAL_RANK", "NODE_RANK", "GROUP_RANK", "ROLE_RANK", "LOCAL_WORLD_SIZE", "CROSS_RANK", "LOCAL_SIZE",
        "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_NODE_RANK", "PMI_RANK", "PMI_LOCAL_RANK", "MPI_LOCALRANKID",
        "CUDA_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES",  # hidden during torch's import
        "HF_MODULES_CACHE", "HF_DATASETS_CACHE", "TORCH_EXTENSIONS_DIR", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR",
        "NUMBA_CACHE_DIR", "MPLCONFIGDIR", "WANDB_DIR", "TMPDIR",
    }
)  # fmt: skip
"""Variables that may differ between the workers of a server, because importing torch doesn't read them."""


@dataclass(frozen=True)
class WorkerStart:
    """How to start a worker: with its command line, or through a fork server that gets its plan."""

    command: list[str]
    plan: str
    environment: Mapping[str, str]
    cwd: str
    shown: Path
    """A folder that programs can't write to."""
    world: World
    line: int | None = None
    """The descriptor of its connection to the exchange, if it is connected to other ranks."""


class ConfinedProcess:
    """A worker's process in its world, a session leader. ``output`` is its stdout and stderr."""

    def __init__(self, start: WorkerStart, server: ForkServer | None) -> None:
        self._start = start
        self._server = server
        self._popen: subprocess.Popen[bytes] | None = None
        self._pid: int | None = None
        self._ended: int | None = None
        read, self._write = os.pipe()
        self.output: IO[bytes] = os.fdopen(read, "rb", buffering=0)
        if server is None or not server.request_fork(self, start, self._write):
            self.spawn()

    def spawn(self) -> None:
        """Start it as a separate process that imports everything itself."""
        self._server = None
        start = self._start
        lines = {} if start.line is None else {start.line: EXCHANGE_DESCRIPTOR}
        self._popen = subprocess.Popen(
            start.world.command(start.command, descriptors=lines),
            env=start.world.environment(start.environment),
            cwd=start.cwd,
            stdin=subprocess.DEVNULL,
            stdout=self._write,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=tuple(lines),
        )
        os.close(self._write)

    def set_pid(self, pid: int) -> None:
        """Note that the server has forked it; ``pid`` is its id in the world."""
        self._pid = pid
        os.close(self._write)

    def set_exit_status(self, status: int) -> None:
        """Note that the server has seen it end."""
        self._ended = status

    @property
    def is_started(self) -> bool:
        """Whether the process exists."""
        return self._popen is not None or self._pid is not None

    @property
    def returncode(self) -> int | None:
        """Its exit status, negative for a signal; None while it runs."""
        return self._popen.returncode if self._popen is not None else self._ended

    def poll(self) -> int | None:
        """Its exit status, or None while it runs; processes the server's messages first."""
        if self._server is not None:
            self._server.process_messages(0)
        return self._popen.poll() if self._popen is not None else self._ended

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its exit status. Raises subprocess.TimeoutExpired."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while self._popen is None and self._ended is None:
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                raise subprocess.TimeoutExpired(self._start.command, timeout or 0.0)
            assert self._server is not None
            self._server.process_messages(left)
        if self._popen is not None:
            return self._popen.wait(None if deadline is None else max(0.0, deadline - time.monotonic()))
        assert self._ended is not None
        return self._ended

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal to it if it runs."""
        self._send_signal(number, group=False)

    def signal_group(self, number: signal.Signals) -> None:
        """Send a signal to it and all processes it started; SIGKILL before the fork cancels the fork."""
        self._send_signal(number, group=True)

    def _send_signal(self, number: signal.Signals, *, group: bool) -> None:
        if not self.is_started and self._server is not None:
            if number is signal.SIGKILL:
                self._server.cancel_fork(self)
                self._ended = -number
                os.close(self._write)
            return
        if self._popen is not None:
            with contextlib.suppress(ProcessLookupError):
                (os.killpg if group else os.kill)(self._popen.pid, number)
        elif self._pid is not None and self._ended is None:
            self._start.world.signal(self._pid, number, group=group)


class ForkServer:
    """A server that forks workers with equal environments; it starts with the first of them."""

    def __init__(self, python: str, environment: Mapping[str, str], cwd: str, world: World) -> None:
        self._world = world
        self._python = python
        self._environment = {name: value for name, value in environment.items() if name not in _RANK_VARIABLES}
        self._cwd = cwd
        self._channel, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._popen: subprocess.Popen[bytes] | None = None
        self._asked: dict[str, ConfinedProcess] = {}
        self._forked: dict[int, ConfinedProcess] = {}
        self._gone = False

    def command(self, descriptor: str) -> list[str]:
        """The server's command line, given the descriptor of its socket."""
        return python_module_command(
            self._python, "gonogo.virtual.ranks.fork_server", descriptor, dies_with_parent=True
        )

    def can_start(self, start: WorkerStart) -> bool:
        """Whether the worker's command line is the one that the server would replace."""
        return start.command == python_module_command(self._python, "gonogo.virtual", start.plan, dies_with_parent=True)

    def _start_process(self) -> None:
        with self._theirs as theirs:
            self._popen = subprocess.Popen(
                self._world.command(self.command(str(theirs.fileno())), descriptors={theirs.fileno(): theirs.fileno()}),
                env=self._world.environment(self._environment),
                cwd=self._cwd,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                pass_fds=[theirs.fileno()],
            )

    def request_fork(self, process: ConfinedProcess, start: WorkerStart, output: int) -> bool:
        """Request a worker; False if the server can't fork it or has ended."""
        if not self.can_start(start):
            return False
        if self._popen is None:
            self._start_process()
        path = start.shown / "start.json"
        path.write_bytes(
            msgspec.json.encode(
                {"plan": start.plan, "environment": dict(start.environment), "cwd": start.cwd, "command": start.command}
            )
        )
        try:
            lines = [] if start.line is None else [start.line]
            socket.send_fds(self._channel, [str(path).encode()], [output, *lines])
        except OSError:
            return False
        self._asked[str(path)] = process
        return True

    def cancel_fork(self, process: ConfinedProcess) -> None:
        """Cancel a worker that has not been forked yet; stops the server if it has forked none."""
        self._asked = {path: requested for path, requested in self._asked.items() if requested is not process}
        if not self._forked and self._popen is not None:
            self._popen.kill()

    def process_messages(self, timeout: float | None) -> None:
        """Process the server's messages, waiting up to ``timeout`` seconds for the first one."""
        if self._gone:
            return
        while select.select([self._channel], [], [], timeout)[0]:
            timeout = 0
            try:
                packet = self._channel.recv(_MAX_PACKET_BYTES)
            except OSError:
                packet = b""
            if not packet:
                self._handle_server_exit()
                return
            what, pid, rest = packet.decode().split(" ", 2)
            if what == "ended":
                process = self._forked.pop(int(pid), None)
                if process is not None:
                    process.set_exit_status(int(rest))
                continue
            process = self._asked.pop(rest, None)
            if process is None:
                self._world.signal(int(pid), signal.SIGKILL, group=True)
                continue
            self._forked[int(pid)] = process
            process.set_pid(int(pid))

    def _handle_server_exit(self) -> None:
        """The server has ended, and its workers with it: start the workers that it was still to fork."""
        self._gone = True
        for process in self._forked.values():
            process.set_exit_status(-signal.SIGKILL)
        requested, self._asked = list(self._asked.values()), {}
        for process in requested:
            process.spawn()

    def close(self) -> None:
        """Stop the server."""
        self._channel.close()
        self._theirs.close()
        if self._popen is not None:
            self._popen.kill()
            self._popen.wait()


def can_share_fork_server(environments: Sequence[Mapping[str, str]]) -> bool:
    """Whether workers with these environments find the same torch after importing it."""
    first, *others = environments
    fixed = {name: value for name, value in first.items() if name not in _RANK_VARIABLES}
    return all({name: value for name, value in one.items() if name not in _RANK_VARIABLES} == fixed for one in others)


@contextlib.contextmanager
def fork_server(
    python: str, environments: Sequence[Mapping[str, str]], cwd: str, world: World
) -> Iterator[ForkServer | None]:
    """A server for workers with these environments; None if it is better to start each separately."""
    if len(environments) < 2 or sys.platform != "linux" or not can_share_fork_server(environments):
        yield None
        return
    server = ForkServer(python, environments[0], cwd, world)
    try:
        yield server
    finally:
        server.close()
