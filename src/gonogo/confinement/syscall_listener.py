"""Observe system calls of confined programs: each call waits until it has been looked at, then continues.

The kernel reports them on a descriptor of seccomp's user notification, which ``inside/seccomp.py`` creates for a
traced program. Calls are only observed here, never denied.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import struct
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gonogo.confinement.inside.calls import COMMANDS
from gonogo.confinement.process_memory import ProcessMemory

_RECEIVE, _SEND, _IS_VALID, _SET_FLAGS = 0xC0502100, 0xC0182101, 0x40082102, 0x40082104
_NOTIFICATION, _RESPONSE = struct.Struct("=QIIiIQ6Q"), struct.Struct("=QqiI")
_CONTINUE_FLAG = 1
_SYNC_WAKE_UP_FLAG = 1
_MACHINES = ("x86_64", "aarch64")
"""The architectures for which ``COMMANDS`` has numbers."""


def _syscall_names() -> dict[int, str]:
    """The traced calls by number; empty if there is no table for this machine's architecture."""
    if not (sys.platform.startswith("linux") and os.uname().machine in _MACHINES and sys.maxsize > 1 << 32):
        return {}
    index = _MACHINES.index(os.uname().machine)
    return {number: name for name, numbers in COMMANDS.items() if (number := numbers[index]) is not None}


_SYSCALL_NAMES = _syscall_names()


@dataclass(frozen=True)
class SystemCall:
    """A system call in progress. ``pid`` is the process id in gonogo's namespace."""

    pid: int
    name: str | None
    """None for an unknown number."""
    arguments: Sequence[int]
    memory: ProcessMemory
    still_waits: Callable[[], bool]
    """Whether the process still exists and waits in this call."""


OnCall = Callable[[SystemCall], None]


class SyscallListener:
    """Calls ``on_call`` for each system call, one at a time, in a thread. Use as a context manager."""

    def __init__(self, on_syscall: OnCall) -> None:
        self.failures: list[str] = []
        """Exceptions raised by ``on_call``; the system calls continued all the same."""
        self._on_call = on_syscall
        self._memory = ProcessMemory()
        self._new: list[int] = []
        self._wakes, self._wake = os.pipe()
        self._ending = False
        self._thread = threading.Thread(target=self._serve_listeners, daemon=True, name="gonogo-listening")

    def __enter__(self) -> SyscallListener:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ending = True
        os.write(self._wake, b"\0")
        self._thread.join()
        for descriptor in (self._wakes, self._wake):
            os.close(descriptor)

    def add(self, listener: int) -> None:
        """Add a seccomp notification descriptor, which is closed once all of its processes have ended."""
        with contextlib.suppress(OSError):  # not supported before Linux 6.6
            fcntl.ioctl(listener, _SET_FLAGS, _SYNC_WAKE_UP_FLAG)
        self._new.append(listener)
        os.write(self._wake, b"\0")

    def _serve_listeners(self) -> None:
        poll = select.poll()
        poll.register(self._wakes, select.POLLIN)
        listeners: set[int] = set()
        while not self._ending:
            for descriptor, event in poll.poll():
                if descriptor == self._wakes:
                    os.read(self._wakes, 64)
                    while self._new:
                        listener = self._new.pop(0)
                        listeners.add(listener)
                        poll.register(listener, select.POLLIN)
                elif event & select.POLLIN:
                    self._answer_notification(descriptor)
                else:  # all of its processes have ended
                    poll.unregister(descriptor)
                    listeners.discard(descriptor)
                    os.close(descriptor)
        for listener in (*listeners, *self._new):
            os.close(listener)

    def _answer_notification(self, listener: int) -> None:
        message = bytearray(_NOTIFICATION.size)
        try:
            fcntl.ioctl(listener, _RECEIVE, message)
        except OSError:  # the process was killed meanwhile
            return
        identity, pid, _, number, _, _, *arguments = _NOTIFICATION.unpack(message)

        def still_waits() -> bool:
            with contextlib.suppress(OSError):
                fcntl.ioctl(listener, _IS_VALID, struct.pack("=Q", identity))
                return True
            return False

        call = SystemCall(pid, _SYSCALL_NAMES.get(number), arguments, self._memory, still_waits)
        try:
            self._on_call(call)
        except Exception as error:  # a process must never be left waiting
            self.failures.append(repr(error))
        with contextlib.suppress(OSError):
            fcntl.ioctl(listener, _SEND, _RESPONSE.pack(identity, 0, 0, _CONTINUE_FLAG))
