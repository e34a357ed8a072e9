"""All files that a rehearsal's processes ask for, as the kernel tells them: opened, listed, looked for and not there.

Whatever asks is seen: Python, compiled readers, bash, git, what the program starts. How: ``watched_start.py``.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import platform
import secrets
import select
import socket
import struct
import sys
import threading
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from pathlib import Path

from gonogo.rehearse.kept.process_memory import ProcessMemory
from gonogo.rehearse.kept.watched_start import MACHINES
from gonogo.virtual.sandbox.probe_reporting import FOR_MODULES

_RECEIVE, _SEND, _SET_FLAGS = 0xC0502100, 0xC0182101, 0x40082104
_NOTIFICATION, _RESPONSE = struct.Struct("=QIIiIQ6Q"), struct.Struct("=QqiI")
_GO_ON = 1
_SAME_PROCESSOR = 1
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


class Asked:
    """What was asked of a path, and what stood there at the first time."""

    __slots__ = ("listed", "modules", "opened", "state")

    def __init__(self, state: os.stat_result | None) -> None:
        self.state = state
        self.opened = self.listed = self.modules = False


class Watch:
    """Takes down what the processes that are started by :meth:`command` ask for. Use as a context manager."""

    def __init__(self, scratch: Path) -> None:
        self.asked: dict[str, Asked] = {}
        self.unseen: list[str] = []
        """Why it is not all: empty where everything was seen."""
        self._scratch = f"{scratch}/"
        self._address = f"gonogo-{secrets.token_hex(16)}"
        self._server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._stop, self._stops = os.pipe()
        self._thread = threading.Thread(target=self._listen, daemon=True, name="gonogo-watch")
        self._started = self._joined = 0
        self._names = {number: name for name, number in MACHINES[platform.machine()][2].items()}
        self._memory = ProcessMemory()

    def __enter__(self) -> Watch:
        self._server.bind("\0" + self._address)
        self._server.listen(64)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        os.close(self._stops)
        self._thread.join()
        os.close(self._stop)
        self._server.close()
        if self._joined < self._started:
            self.unseen.append("a process was not watched")

    def command(self, command: Sequence[str], looks: bool) -> list[str]:
        """The command line that runs ``command`` under the watch.

        ``looks``: hear also of what is only looked for. Without it ``command`` is a Python that tells of it by itself.
        """
        self._started += 1
        starter = str(Path(__file__).with_name("watched_start.py"))
        return [sys.executable, "-I", "-S", starter, self._address, "looks" if looks else "opens", *command]

    # -- listening

    def _listen(self) -> None:
        """Until it is stopped. Whatever happens in here, a process that waits is let go on."""
        poll = select.poll()
        poll.register(self._server, select.POLLIN)
        poll.register(self._stop, select.POLLIN)
        listeners: dict[int, bool] = {}
        while True:
            for descriptor, event in poll.poll():
                if descriptor == self._stop:
                    for listener in listeners:
                        os.close(listener)
                    return
                if descriptor == self._server.fileno():
                    for listener, looks in self._accept():
                        listeners[listener] = looks
                        poll.register(listener, select.POLLIN)
                elif event & select.POLLIN:
                    self._answer(descriptor, listeners[descriptor])
                else:  # all of its processes have ended
                    poll.unregister(descriptor)
                    del listeners[descriptor]
                    os.close(descriptor)

    def _accept(self) -> Iterator[tuple[int, bool]]:
        """The new listener, and whether it hears of looks."""
        with self._server.accept()[0] as channel:
            what, descriptors, _, _ = socket.recv_fds(channel, 64, 1)
        for listener in descriptors:
            with contextlib.suppress(OSError):  # kernels before 6.6 don't know it
                fcntl.ioctl(listener, _SET_FLAGS, _SAME_PROCESSOR)
            self._joined += 1
            yield listener, what == b"looks"

    def _answer(self, listener: int, looks: bool) -> None:
        told = bytearray(_NOTIFICATION.size)
        try:
            fcntl.ioctl(listener, _RECEIVE, told)
        except OSError:  # the process was ended meanwhile
            return
        identity, pid, _, number, _, _, *arguments = _NOTIFICATION.unpack(told)
        try:
            name = self._names.get(number)
            if name in _STARTED and not looks:
                self._starts(pid, arguments if name == "execve" else arguments[1:])
            self._take_down(pid, name, arguments)
        except Exception as error:  # a process must never be left waiting
            self.unseen.append(repr(error))
        with contextlib.suppress(OSError):
            fcntl.ioctl(listener, _SEND, _RESPONSE.pack(identity, 0, 0, _GO_ON))

    def _take_down(self, pid: int, name: str | None, arguments: Sequence[int]) -> None:
        if name == "connect":
            self._connects(self._memory(pid, arguments[1], arguments[2] & 0xFF))
            return
        if name is None or name == "io_uring_setup":
            self.unseen.append("system calls that are not watched")
            return
        first = name in _PATH_FIRST
        path = os.fsdecode(self._memory.text(pid, arguments[0 if first else 1]))
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
            asked = self.asked[path] = Asked(state_of(path))
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
                self.asked[target] = asked = Asked(state_of(target))
                asked.opened = True

    def _starts(self, pid: int, arguments: Sequence[int]) -> None:
        """A Python process, which tells of its own looks, becomes another program."""
        program = os.path.basename(os.fsdecode(self._memory.text(pid, arguments[0])))
        words = [self._memory.text(pid, place) for place in self._memory.pointers(pid, arguments[1])]
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


_CURRENT: ContextVar[Watch | None] = ContextVar("watch", default=None)


@contextlib.contextmanager
def watched(watch: Watch | None) -> Iterator[None]:
    """Within the block what is started by :func:`under_watch` is watched."""
    token = _CURRENT.set(watch)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def under_watch(command: Sequence[str], *, looks: bool = False) -> list[str]:
    """The command line to start: of a rehearsal that is to be kept, under its watch."""
    watch = _CURRENT.get()
    return list(command) if watch is None else watch.command(command, looks)


def also_listed(folder: str) -> None:
    """A folder that this process lists on behalf of those that it starts."""
    watch = _CURRENT.get()
    if watch is not None:
        watch.asked.setdefault(folder, Asked(state_of(folder))).listed = True


def not_all_known(what: str) -> None:
    """Something decides what comes of the rehearsal that the watch does not see: it is not to be kept."""
    watch = _CURRENT.get()
    if watch is not None:
        watch.unseen.append(what)


def can_watch() -> bool:
    """Whether this kernel tells of system calls."""
    return sys.platform.startswith("linux") and platform.machine() in MACHINES and sys.maxsize > 1 << 32
