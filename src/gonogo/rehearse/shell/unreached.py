"""Commands of a script that fail because a rehearsal reaches no other machine: on the one that trains they would not.

No name tells which these are: the kernel does. A program asks it for a way to another machine (``connect``, of a name
server too), has none, and ends with a status other than 0. The script is run once more then, and that command left out.
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
"""A process by its number and its start, for numbers come again."""
_DNS_PORT = 53
_PATIENCE = 10.0
"""Who has found no way for so long, and still tries, would try on."""
_MAX_FAILURES_PER_PROGRAM = 2
"""So many commands of a program are left out one by one; then all of them are, unless another has succeeded."""

_NUMBER = re.compile(r"(?<![\d.])\d{3,}(?![\d.])")


class UnreachedCommands:
    """Those of one script, over its runs."""

    def __init__(self) -> None:
        self._commands: set[tuple[str, ...]] = set()
        self._programs: Counter[str] = Counter()
        self._succeeded: set[str] = set()
        self._trying: dict[Process, tuple[tuple[str, ...], float]] = {}
        self._failed = False

    def begin(self) -> None:
        """The script is run from its start."""
        self._trying.clear()
        self._failed = False

    @property
    def has_failed(self) -> bool:
        """Whether a command of this run failed that the next is to leave out."""
        now = time.monotonic()
        for process, (words, since) in list(self._trying.items()):
            if now > since + _PATIENCE:
                del self._trying[process]
                if process_start_time(process[0]) == process[1]:
                    self._fail(words)
        return self._failed

    def should_skip(self, words: Sequence[str]) -> bool:
        """Whether a command is one of those that failed."""
        name = os.path.basename(words[0]) if words else ""
        return _without_numbers(words) in self._commands or (
            self._programs[name] >= _MAX_FAILURES_PER_PROGRAM and name not in self._succeeded
        )

    def look(self, call: SystemCall, replaced_commands: Mapping[Process, Sequence[str]]) -> None:
        """Look at a call of ``connect`` or ``exit_group``. ``replaced_commands``: what processes were to become."""
        if call.name == "connect":
            if _is_remote_address(call.memory(call.pid, call.arguments[1], call.arguments[2] & 0xFF)):
                process = _shell_child_of(_process_of(call.pid))
                if process is not None:
                    words = replaced_commands.get(process) or command_line(process[0])
                    self._trying.setdefault(process, (tuple(words), time.monotonic()))
            return
        number = _process_of(call.pid)
        words, _ = self._trying.pop((number, process_start_time(number)), ((), 0.0))
        if call.arguments[0] & 0xFF == 0:
            own = words or command_line(number)
            self._succeeded.update(os.path.basename(word) for word in own[:1])
        elif words:
            self._fail(words)

    def _fail(self, words: tuple[str, ...]) -> None:
        command = _without_numbers(words)
        if words and command not in self._commands:
            self._commands.add(command)
            self._programs[os.path.basename(words[0])] += 1
            self._failed = True


def _without_numbers(words: Sequence[str]) -> tuple[str, ...]:
    """The words without what differs from run to run, and from part to part of what is fetched: long numbers."""
    return tuple(_NUMBER.sub("#", word) for word in words)


def process_start_time(process: int) -> str:
    """When a process was started, in the kernel's ticks."""
    return next(iter(_read_stat(process)[19:20]), "")


def command_line(process: int) -> tuple[str, ...]:
    """The words of a process's command, none for one that has gone."""
    with contextlib.suppress(OSError), open(f"/proc/{process}/cmdline", "rb") as file:
        return tuple(os.fsdecode(word) for word in file.read().split(b"\0")[:-1])
    return ()


def _is_remote_address(address: bytes) -> bool:
    """Whether a socket's address is of another machine, or of a server of names."""
    family = int.from_bytes(address[:2], sys.byteorder)
    if family not in (socket.AF_INET, socket.AF_INET6):
        return False
    if int.from_bytes(address[2:4], "big") == _DNS_PORT:
        return True
    host = socket.inet_ntop(family, address[4:8] if family == socket.AF_INET else address[8:24])
    with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as own:
        own.bind((host, 0))  # only this machine's own addresses can be
        return False
    return True


def _shell_child_of(process: int) -> Process | None:
    """The process, or the one above it, that a shell has started; None where it is a shell itself."""
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


def _process_of(thread: int) -> int:
    with contextlib.suppress(OSError), open(f"/proc/{thread}/status", encoding="utf-8", errors="replace") as file:
        for line in file:
            if line.startswith("Tgid:"):
                return int(line.split()[1])
    return thread


def _read_stat(process: int) -> list[str]:
    """The fields of ``/proc/PROCESS/stat`` behind the name: its state, its parent, …, at 19 its start."""
    with contextlib.suppress(OSError), open(f"/proc/{process}/stat", encoding="utf-8", errors="replace") as file:
        return file.read().rpartition(")")[2].split()
    return []
