"""A world: where a stranger's programs run, apart from the user's files, processes, network and secrets.

The first process of a world makes it and starts programs in it (``inside/first.py``). It runs until the world is
closed, or gonogo ends in whatever way; all that was started in the world ends with it. Each program is started through
a relay (``inside/relay.py``): to ``subprocess`` a world is no more than some words before a command.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal

import msgspec

from gonogo.finding import Text

Means = Literal["namespaces", "landlock", "none"]
"""What confines a world: the kernel's namespaces with overlayfs; Landlock with seccomp; nothing."""
Heard = Literal["", "files", "looks", "starts"]
"""Which calls of a program wait for the world's listener: those that open or start a file; also those that only look
whether it is there; those that start a program."""
OnListener = Callable[[int, str], None]
"""Takes the descriptor at which the calls of a program are heard, and which they are."""

_INSIDE = str(Path(__file__).with_name("inside"))
_LONGEST_START = 20.0
_MOST_PROCESSES = 8192
_LEAST_MEMORY = 96 << 20
_LEAST_FREE = 32 << 20
_LONGEST_ADDRESS = 100  # of a socket's path: 108 with the zero, in the kernel
_LOOK = 0.5

TOO_MANY_PROCESSES = Text(
    "the program started more than {limit} processes, and was ended", "程序启动的进程超过 {limit} 个，已被结束"
)
OUT_OF_MEMORY = Text(
    "this machine has less than {limit} MiB of memory left: the programs of the rehearsal were ended",
    "本机可用内存不足 {limit} MiB：排练的程序已被结束",
)
DISK_FULL = Text(
    "the temporary folder {path} is full: what the program writes is kept there. Free some space, or point TMPDIR to a "
    "larger disk",
    "临时目录 {path} 已满：程序写出的内容存放在那里。请清理空间，或用 TMPDIR 指向更大的磁盘",
)
WROTE_TOO_MUCH = Text(
    "the program wrote more than {limit} GiB of real data, which is kept in {path}: have it write less (a smaller data "
    "set), or set GONOGO_LAYER_GIB to allow more",
    "程序写出的真实数据超过 {limit} GiB（存放于 {path}）：请让它少写一些（例如更小的数据集），或设置 GONOGO_LAYER_GIB 提高上限",
)


class WorldRefused(Exception):
    """The kernel does not allow a world of that kind; the message says what it refused."""


@dataclass(frozen=True)
class WorldSpec:
    """What a world shows. Paths are absolute and without links."""

    means: Means
    folder: Path
    """The world's own, new; programs don't see it."""
    private: Path
    """Shown empty, but for what of it is shared."""
    shared: tuple[Path, ...] = ()
    """Folders that are as they are outside: what programs write there is really written."""
    shown: tuple[Path, ...] = ()
    """Folders of gonogo's that programs can read, and not write."""
    hidden: tuple[str, ...] = ()
    """Files and folders that are shown empty (with Landlock: that can't be read)."""
    below: tuple[Path, ...] = ()
    """Trees that mirror the root folder (see :attr:`World.tree`), seen before the real files; the first one wins."""
    made: Path | None = None
    """A tree of files that were made for the launch: seen before the real ones, below what ``below`` has."""


class World:
    """Use as a context manager. Raises WorldRefused on entering."""

    def __init__(self, spec: WorldSpec, on_listener: OnListener | None = None) -> None:
        self.spec = spec
        self.notes: tuple[str, ...] = ()
        """What of the files could not be laid over."""
        self.limit: Text | None = None
        """Why the world was ended before its time, or None."""
        self._on_listener = on_listener
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._thread: threading.Thread | None = None
        self._most_bytes = int(float(os.environ.get("GONOGO_LAYER_GIB") or 16) * (1 << 30))

    @property
    def tree(self) -> Path:
        """What was changed in it, as a tree that mirrors the root folder: an upper part of overlayfs."""
        return self.spec.folder / "layer" / "tree"

    @property
    def shows_changes(self) -> bool:
        """Whether programs may write where they like, and see what they wrote."""
        return self.spec.means == "namespaces"

    def __enter__(self) -> World:
        layer = self.spec.folder / "layer"
        layer.mkdir(parents=True)
        address = str(self.spec.folder / "asked")
        self._address_folder: str | None = None
        if len(os.fsencode(address)) > _LONGEST_ADDRESS:
            self._address_folder = tempfile.mkdtemp(prefix="gonogo-", dir="/tmp")
            address = f"{self._address_folder}/asked"
        self._address = address
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with theirs, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
                listener.bind(address)
                listener.listen(128)
                ends = (theirs.fileno(), listener.fileno())
                self._process = subprocess.Popen(
                    [sys.executable, "-I", "-S", _INSIDE, "begin", *map(str, ends)],
                    env={}, cwd="/", stdin=subprocess.DEVNULL, pass_fds=ends, start_new_session=True,
                )  # fmt: skip
            ours.send(msgspec.json.encode(self._message(layer)))
            self._take_answer(ours)
        except BaseException:
            ours.close()
            self._reap()
            raise
        self._control = ours
        self._thread = threading.Thread(target=self._hear, args=(ours,), daemon=True, name="gonogo-world")
        self._thread.start()
        return self

    def _message(self, layer: Path) -> dict[str, object]:
        spec = self.spec
        return {
            "means": spec.means,
            "layer": str(layer),
            "private": str(spec.private),
            "shared": [str(path) for path in spec.shared],
            "shown": [str(path) for path in spec.shown],
            "hidden": [path for path in spec.hidden if os.path.exists(path)],
            "below": [str(path) for path in spec.below],
            "made": "" if spec.made is None else str(spec.made),
            "umask": _umask(),
            "processes": _MOST_PROCESSES,
            "least_memory": _LEAST_MEMORY,
        }

    def _take_answer(self, control: socket.socket) -> None:
        control.settimeout(_LONGEST_START)
        try:
            said = control.recv(1 << 20)
        except (TimeoutError, ConnectionError):
            said = b""
        control.settimeout(None)
        what, _, rest = said.partition(b" ")
        if what != b"ready":
            raise WorldRefused(rest.decode(errors="replace") or "its first process ended without a word")
        self.notes = tuple(msgspec.json.decode(rest, type=list[str]))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End all that runs in the world. What it has written stays in :attr:`tree`."""
        if self._control is not None:
            with contextlib.suppress(OSError):
                self._control.shutdown(socket.SHUT_RDWR)
        self._reap()
        if self._thread is not None:
            self._thread.join(5)
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._address_folder is not None:
            shutil.rmtree(self._address_folder, ignore_errors=True)

    def _reap(self) -> None:
        if self._process is not None:
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def command(self, words: Sequence[str], *, heard: Heard = "", pass_fds: Iterable[int] = ()) -> list[str]:
        """The command line that runs ``words`` in the world: for subprocess, with environment, folder and streams.

        The calls in ``heard`` are those that the listener of the world is given. Descriptors in ``pass_fds`` are handed
        on under their numbers; ``subprocess`` has to pass them as well.
        """
        descriptors = ",".join(map(str, pass_fds))
        return [sys.executable, "-I", "-S", _INSIDE, "run", self._address, heard, descriptors, *words]

    def signal(self, process: int, number: signal.Signals, *, group: bool = False) -> None:
        """Signal a process, by the number that it has in the world."""
        if self._control is not None:
            with contextlib.suppress(OSError):
                self._control.send(b"%s %d %d" % (b"group" if group else b"process", process, number))

    # -- what its first process says, and the size of what is written

    def _hear(self, control: socket.socket) -> None:
        poll = select.poll()
        poll.register(control, select.POLLIN)
        next_look = time.monotonic() + _LOOK
        while True:
            if poll.poll(_LOOK * 1000):
                try:
                    said, descriptors, _, _ = socket.recv_fds(control, 1 << 16, 4)
                except OSError:
                    return
                if not said:
                    return
                self._take_in(said.decode(errors="replace"), descriptors)
            if time.monotonic() >= next_look:
                began = time.monotonic()
                self._look_at_layer()
                next_look = time.monotonic() + max(_LOOK, 20 * (time.monotonic() - began))

    def _take_in(self, said: str, descriptors: Sequence[int]) -> None:
        what, _, rest = said.partition(" ")
        if what == "listener" and self._on_listener is not None:
            for descriptor in descriptors:
                self._on_listener(descriptor, rest)
            return
        for descriptor in descriptors:
            os.close(descriptor)
        if what == "limit":
            which, _, limit = rest.partition(" ")
            if which == "processes":
                self.limit = TOO_MANY_PROCESSES.format(limit=limit)
            else:
                self.limit = OUT_OF_MEMORY.format(limit=int(limit) >> 20)

    def _look_at_layer(self) -> None:
        if self.limit is not None:
            return
        try:
            state = os.statvfs(self.spec.folder)
        except OSError:
            return
        parent = str(self.spec.private.parent)
        if state.f_bavail * state.f_frsize < _LEAST_FREE:
            self.limit = DISK_FULL.format(path=parent)
        elif bytes_below(self.tree) > self._most_bytes:
            self.limit = WROTE_TOO_MUCH.format(limit=self._most_bytes >> 30, path=parent)
        if self.limit is not None and self._control is not None:
            with contextlib.suppress(OSError):
                self._control.shutdown(socket.SHUT_WR)


def bytes_below(folder: Path) -> int:
    """Bytes on the disk of all files below a folder; 0 for what can't be read."""
    return sum(state.st_blocks * 512 for _, state in files_below(folder))


def files_below(folder: Path) -> Iterator[tuple[str, os.stat_result]]:
    """(path, lstat) of all regular files below a folder that can be read, no links followed."""
    waiting = [str(folder)]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    elif entry.is_file(follow_symlinks=False):
                        with contextlib.suppress(OSError):
                            yield entry.path, entry.stat(follow_symlinks=False)
        except OSError:
            continue


def remove_tree(folder: Path) -> None:
    """Remove a folder that a program wrote, whatever modes it left behind."""

    def again(function: Callable[[str], object], path: str, _error: object) -> None:
        with contextlib.suppress(OSError):
            os.chmod(os.path.dirname(path), 0o700)
            if stat.S_ISDIR(os.lstat(path).st_mode):
                os.chmod(path, 0o700)
                shutil.rmtree(path, ignore_errors=True)
            else:
                os.unlink(path)

    if sys.version_info >= (3, 12):
        shutil.rmtree(folder, onexc=again)
    else:
        shutil.rmtree(folder, onerror=again)


def _umask() -> int:
    """This process's umask, which can only be read by setting it, or from /proc (Linux 4.7)."""
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as file:
            for line in file:
                if line.startswith("Umask:"):
                    return int(line.split()[1], 8)
    except OSError:
        pass
    return 0o022
