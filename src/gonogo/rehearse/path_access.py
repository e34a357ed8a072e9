"""All files that a rehearsal's processes ask for, as the kernel tells them: opened, listed, looked for and not there.

Whatever asks is seen: Python, compiled readers, bash, git, what the program starts
(``confinement/syscall_listener.py``).
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from pathlib import Path

from gonogo.confinement.syscall_listener import SystemCall
from gonogo.confinement.world import TracedCalls
from gonogo.virtual.protocol.plan import FOR_MODULES

_AT_CWD = 0xFFFFFF9C
# Where the path stands among the arguments, and before it the folder that it counts from.
_PATH_FIRST = frozenset({"open", "stat", "lstat", "access", "readlink", "execve"})
_OPENING = {"open": 1, "openat": 2}
_O_PATH = getattr(os, "O_PATH", 0)
_NO_FILES = ("/proc/", "/sys/", "/dev/")
_SHARED_MEMORY = "/dev/shm/"
_STARTED = frozenset({"execve", "execveat"})
# What frameworks start to ask what the machine is; of others that a Python process starts the looks aren't seen.
_HARMLESS = frozenset(
    {"uname", "hostname", "lscpu", "ldconfig", "ldconfig.real", "gcc", "cc", "g++", "c++", "ld", "collect2", "objdump",
     "nvcc", "ninja", "git", "which", "nvidia-smi", "npu-smi"}
)  # fmt: skip
# Python processes that gonogo starts, and those of multiprocessing, tell of their looks as their parent does.
_OWN = (b"run_module('gonogo.", b"from multiprocessing.", b"from multiprocess.")


class PathAccess:
    """What was asked of a path, and what stood there at the first time."""

    __slots__ = ("listed", "modules", "opened", "state")

    def __init__(self, state: os.stat_result | None) -> None:
        self.state = state
        self.opened = self.listed = self.modules = False


class AccessRecorder:
    """Takes down what the programs whose calls are heard ask for: :meth:`take_down` is handed each call."""

    def __init__(self, scratch: Path) -> None:
        self.asked: dict[str, PathAccess] = {}
        self.unseen: list[str] = []
        """Why it is not all: empty where everything was seen."""
        self._scratch = f"{scratch}/"

    def take_down(self, call: SystemCall) -> None:
        """Take down a call's path, or that not all is seen."""
        try:
            if call.name in _STARTED and call.traced == "files":
                self._starts(call, call.arguments if call.name == "execve" else call.arguments[1:])
            self._take_down(call)
        except Exception as error:
            self.unseen.append(repr(error))

    def _take_down(self, call: SystemCall) -> None:
        pid, name, arguments = call.pid, call.name, call.arguments
        if name == "exit_group":
            return
        if name == "connect":
            self._connects(call.memory(pid, arguments[1], arguments[2] & 0xFF))
            return
        if name is None:
            self.unseen.append("system calls that are not watched")
            return
        first = name in _PATH_FIRST
        path = os.fsdecode(call.memory.text(pid, arguments[0 if first else 1]))
        if not path:
            return
        if not path.startswith("/"):
            folder = _AT_CWD if first else arguments[0] & 0xFFFFFFFF
            base = os.readlink(f"/proc/{pid}/cwd" if folder == _AT_CWD else f"/proc/{pid}/fd/{folder}")
            path = f"{base}/{path}"
        if path.startswith(self._scratch):
            self._leads_out(path)
        elif not f"{path}/".startswith(_NO_FILES) or path.startswith(_SHARED_MEMORY):
            self._note(path, name, arguments)

    def _note(self, path: str, name: str, arguments: Sequence[int]) -> None:
        flags = arguments[_OPENING[name]] if name in _OPENING else 0
        if flags & os.O_ACCMODE == os.O_WRONLY and not flags & _O_PATH:
            return  # what is written without being read decides nothing
        modules = path.endswith(FOR_MODULES)
        if modules:
            path = path[: -len(FOR_MODULES)] or "/"
        asked = self.asked.get(path)
        if asked is None:
            asked = self.asked[path] = PathAccess(state_of(path))
        if name in _OPENING or name == "openat2":
            if modules:
                asked.modules = True
            elif flags & os.O_DIRECTORY:
                asked.listed = True
            elif not flags & _O_PATH:
                asked.opened = True

    def _leads_out(self, path: str) -> None:
        """A link in the rehearsal's own folder, to a file of the user's."""
        with contextlib.suppress(OSError):
            target = os.readlink(path)
            if target.startswith("/") and not target.startswith(self._scratch) and target not in self.asked:
                self.asked[target] = asked = PathAccess(state_of(target))
                asked.opened = True

    def _starts(self, call: SystemCall, arguments: Sequence[int]) -> None:
        """A Python process, which tells of its own looks, becomes another program."""
        memory = call.memory
        program = os.path.basename(os.fsdecode(memory.text(call.pid, arguments[0])))
        words = [memory.text(call.pid, place) for place in memory.pointers(call.pid, arguments[1])]
        if program not in _HARMLESS and not any(own in word for word in words for own in _OWN):
            self.unseen.append(f"the program starts {program}")

    def _connects(self, address: bytes) -> None:
        family = int.from_bytes(address[:2], sys.byteorder)
        here: dict[int, bool] = {
            socket.AF_INET: address[4:5] == b"\x7f",
            socket.AF_INET6: address[8:24] == bytes(15) + b"\1",
        }
        if not here.get(family, True):
            self.unseen.append("the network was asked")


def state_of(path: str) -> os.stat_result | None:
    """``os.stat``, or None where there is nothing that can be seen."""
    try:
        return os.stat(path)
    except (OSError, ValueError):
        return None


_CURRENT: ContextVar[AccessRecorder | None] = ContextVar("watch", default=None)


@contextlib.contextmanager
def recording(watch: AccessRecorder | None) -> Iterator[None]:
    """Within the block :func:`traced_calls` says what the watch needs."""
    token = _CURRENT.set(watch)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def is_recording() -> bool:
    """Whether what is started now is to be watched."""
    return _CURRENT.get() is not None


def traced_calls() -> TracedCalls:
    """What is to be heard of a Python of gonogo's own that is started now; it tells by itself what it looks for."""
    return "" if _CURRENT.get() is None else "files"


def also_listed(folder: str) -> None:
    """A folder that this process lists on behalf of those that it starts."""
    watch = _CURRENT.get()
    if watch is not None:
        watch.asked.setdefault(folder, PathAccess(state_of(folder))).listed = True


def not_all_known(what: str) -> None:
    """Something decides what comes of the rehearsal that the watch does not see: it is not to be kept."""
    watch = _CURRENT.get()
    if watch is not None:
        watch.unseen.append(what)
