"""In which system call each thread of a process is, according to Linux: whether it sleeps, and with a time limit.

A thread that waits for Python's GIL, or for a lock with a timeout, is in the same system call as one that waits forever
for a lock: only the call's arguments tell them apart (``/proc/PID/task/TID/syscall``).
"""

from __future__ import annotations

import os
import platform
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

_NUMBERS: dict[str, dict[int, str]] = {
    "x86_64": {202: "futex", 61: "wait4", 247: "waitid", 0: "read", 1: "write", 45: "recvfrom"},
    "aarch64": {98: "futex", 260: "wait4", 95: "waitid", 63: "read", 64: "write", 207: "recvfrom"},
}
_IO = ("read", "write", "recvfrom")
_FUTEX_PRIVATE, _NO_HANG = 128, 1
_TIMEOUT_OF_FUTEX, _OPTIONS_OF_WAIT4, _OPTIONS_OF_WAITID = 3, 2, 3

State = Literal["runs", "forever", "shared", "child", "io", "sleeps"]
"""``forever``: waits without a time limit for a lock of its own process; ``shared``: for one that several processes
share; ``child``: for the end of a process; ``io``: reads or writes; ``sleeps``: anything else that isn't running."""


@dataclass(frozen=True)
class ThreadState:
    """The state of a thread, and how often it has gone to sleep so far."""

    state: State
    sleeps: int = 0


def call_of(thread: int, process: str = "self") -> ThreadState:
    """What a thread does, by its native id. A call that can't be read counts as running: nothing is known of it."""
    try:
        words = Path("/proc", process, "task", str(thread), "syscall").read_text().split()
        number = int(words[0])
    except (OSError, ValueError, IndexError):  # "running", or it has ended
        return ThreadState("runs")
    sleeps = _times_slept(thread, process)
    name = _NUMBERS.get(platform.machine(), {}).get(number)
    arguments = [int(word, 16) for word in words[1:7]]
    if name == "futex":
        if arguments[_TIMEOUT_OF_FUTEX]:
            return ThreadState("sleeps", sleeps)
        return ThreadState("forever" if arguments[1] & _FUTEX_PRIVATE else "shared", sleeps)
    options = {"wait4": _OPTIONS_OF_WAIT4, "waitid": _OPTIONS_OF_WAITID}.get(name or "")
    if options is not None and not arguments[options] & _NO_HANG:
        return ThreadState("child", sleeps)
    return ThreadState("io" if name in _IO else "sleeps", sleeps)


def _times_slept(thread: int, process: str) -> int:
    with suppress(OSError, ValueError):
        for line in Path("/proc", process, "task", str(thread), "status").read_text().splitlines():
            if line.startswith("voluntary_ctxt_switches:"):
                return int(line.split()[1])
    return 0


def tasks(process: str = "self") -> list[int]:
    """The native ids of a process's threads, Python's and others."""
    with suppress(OSError):
        return [int(name) for name in os.listdir(f"/proc/{process}/task")]
    return []


def children() -> list[int]:
    """The processes that this one has started and that still run, without Python's own helpers."""
    found: list[int] = []
    for task in tasks():
        with suppress(OSError):
            found += map(int, Path(f"/proc/self/task/{task}/children").read_text().split())
    return [child for child in found if not _is_helper(child)]


def _is_helper(process: int) -> bool:
    with suppress(OSError):
        command = Path(f"/proc/{process}/cmdline").read_bytes()
        return b"resource_tracker" in command or b"semaphore_tracker" in command or not command  # ended: a zombie
    return True


def waits_without_limit(process: int) -> bool:
    """Whether all threads of another process wait without a time limit, for locks, processes, reads or writes."""
    calls = [call_of(task, str(process)) for task in tasks(str(process))]
    return bool(calls) and all(call.state in ("forever", "shared", "child", "io") for call in calls)
