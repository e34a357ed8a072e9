"""Commands of a script that fail only because a rehearsal can't reach other machines.

Their names don't show which these are, but the kernel does: such a program tries to ``connect`` to another machine or
a name server, can't, and ends with a non-zero status. The script is then run again without that command.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence

from gonogo.confinement.syscall_listener import SystemCall
from gonogo.evidence.launch.command_words import SHELLS

Process = tuple[int, str]
"""A process by its id and its start time, because ids are reused."""
_DNS_PORT = 53
_CONNECT_RETRY_SECONDS = 10.0
"""Seconds after which a process that keeps trying to connect is considered failed."""
_MAX_FAILURES_PER_PROGRAM = 2
"""After this many failed commands, all commands of a program are skipped, unless another one has succeeded."""

_NUMBER_PATTERN = re.compile(r"(?<![\d.])\d{3,}(?![\d.])")


class UnreachedCommands:
    """The failed commands of one script, over several runs of it."""

    def __init__(self) -> None:
        self._commands: set[tuple[str, ...]] = set()
        self._programs: Counter[str] = Counter()
        self._succeeded: set[str] = set()
        self._trying: dict[Process, tuple[tuple[str, ...], float]] = {}
        self._failed = False

    def begin_run(self) -> None:
        """Start a new run of the script."""
        self._trying.clear()
        self._failed = False

    @property
    def has_failed(self) -> bool:
        """Whether a command failed in this run that the next run has to skip."""
        now = time.monotonic()
        for process, (words, since) in list(self._trying.items()):
            if now > since + _CONNECT_RETRY_SECONDS:
                del self._trying[process]
                if process_start_time(process[0]) == process[1]:
                    self._record_failure(words)
        return self._failed

    def should_skip(self, words: Sequence[str]) -> bool:
        """Whether a command is one of those that failed."""
        name = os.path.basename(words[0]) if words else ""
        return _without_numbers(words) in self._commands or (
            self._programs[name] >= _MAX_FAILURES_PER_PROGRAM and name not in self._succeeded
        )

    def inspect_call(self, call: SystemCall, replaced_commands: Mapping[Process, Sequence[str]]) -> None:
        """Inspect a ``connect`` or ``exit_group`` call. ``replaced_commands`` are those of replaced processes."""
        if call.name == "connect":
            if _is_remote_address(call.memory(call.pid, call.arguments[1], call.arguments[2] & 0xFF)):
                process = _shell_child_of(_process_of_thread(call.pid))
                if process is not None:
                    words = replaced_commands.get(process) or command_line(process[0])
                    self._trying.setdefault(process, (tuple(words), time.monotonic()))
            return
        number = _process_of_thread(call.pid)
        words, _ = self._trying.pop((number, process_start_time(number)), ((), 0.0))
        if call.arguments[0] & 0xFF == 0:
            own = words or command_line(number)
            self._succeeded.update(os.path.basename(word) for word in own[:1])
        elif words:
            self._record_failure(words)

    def _record_failure(self, words: tuple[str, ...]) -> None:
        command = _without_numbers(words)
        if words and command not in self._commands:
            self._commands.add(command)
            self._programs[os.path.basename(words[0])] += 1
            self._failed = True


def _without_numbers(words: Sequence[str]) -> tuple[str, ...]:
    """The words with long numbers masked, which vary between runs and between parts of a download."""
    return tuple(_NUMBER_PATTERN.sub("#", word) for word in words)


def process_start_time(process: int) -> str:
    """The start time of a process, in clock ticks since boot."""
    return next(iter(_read_stat(process)[19:20]), "")


def command_line(process: int) -> tuple[str, ...]:
    """The words of a process's command; empty if it has ended."""
    with contextlib.suppress(OSError), open(f"/proc/{process}/cmdline", "rb") as file:
        return tuple(os.fsdecode(word) for word in file.read().split(b"\0")[:-1])
    return ()


def _is_remote_address(address: bytes) -> bool:
    """Whether a socket address belongs to another machine or is a name server."""
    family = int.from_bytes(address[:2], sys.byteorder)
    if family not in (socket.AF_INET, socket.AF_INET6):
        return False
    if int.from_bytes(address[2:4], "big") == _DNS_PORT:
        return True
    host = socket.inet_ntop(family, address[4:8] if family == socket.AF_INET else address[8:24])
    with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as own:
        own.bind((host, 0))  # succeeds only for this machine's own addresses
        return False
    return True


def _shell_child_of(process: int) -> Process | None:
    """The process or its ancestor that a shell has started; None if it is itself a shell."""
    while process > 1:
        state = _read_stat(process)
        if len(state) < 20:
            return None
        parent = int(state[1])
        if _is_shell(process):
            return None
        if _is_shell(parent):
            return process, state[19]
        process = parent
    return None


def _is_shell(process: int) -> bool:
    with contextlib.suppress(OSError):
        return os.path.basename(os.readlink(f"/proc/{process}/exe")) in SHELLS
    return False


def _process_of_thread(thread: int) -> int:
    with contextlib.suppress(OSError), open(f"/proc/{thread}/status", encoding="utf-8", errors="replace") as file:
        for line in file:
            if line.startswith("Tgid:"):
                return int(line.split()[1])
    return thread


def _read_stat(process: int) -> list[str]:
    """The fields of ``/proc/PROCESS/stat`` after the name: 0 is the state, 1 the parent, 19 the start time."""
    with contextlib.suppress(OSError), open(f"/proc/{process}/stat", encoding="utf-8", errors="replace") as file:
        return file.read().rpartition(")")[2].split()
    return []
