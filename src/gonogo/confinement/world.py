"""A world: a sandbox for untrusted programs, isolated from the user's files, processes, network and secrets.

The first process of a world sets it up and starts programs in it (``inside/init.py``). It runs until the world is
closed or gonogo ends in any way, and all processes in the world end with it. Each program is started through a relay
(``inside/relay.py``), so that running it in a world only takes a prefix to the command given to ``subprocess``.
"""

from __future__ import annotations

import contextlib
import marshal
import math
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal

from gonogo.confinement.trees import copy_tree, disk_usage
from gonogo.finding import Text, UserError, translated

Means = Literal["namespaces", "landlock", "none"]
"""How a world is confined: by namespaces and overlayfs, by Landlock and seccomp, or not at all."""
OnListener = Callable[[int], None]
"""Called with the descriptor on which a program's traced calls are received."""

_INSIDE_FOLDER = str(Path(__file__).with_name("inside"))
_START_TIMEOUT = 20.0
_MAX_PROCESSES = 8192
_MIN_MEMORY_BYTES = 96 << 20
_MIN_FREE_DISK_BYTES = 32 << 20
LAYER_LIMIT_VARIABLE = "GONOGO_LAYER_GIB"
"""Environment variable: the number of GiB that programs may write into a world's layer."""
_DEFAULT_LAYER_GIB = 16.0
_PREFIX = ":"  # as in inside/relay.py
_CHECK_INTERVAL_SECONDS = 0.5

TOO_MANY_PROCESSES = translated("the program started more than {limit} processes and was killed")
OUT_OF_MEMORY = translated("this machine has less than {limit} MiB of memory left: the rehearsed programs were killed")
DISK_FULL = translated(
    "the temporary folder {path}, which holds what the program writes, is full: free some space, or "
    "point TMPDIR to a larger disk"
)
WROTE_TOO_MUCH = translated(
    "the program wrote more than {limit} GiB of real data (kept in {path}): make it write less (a "
    "smaller data set), or raise the limit with GONOGO_LAYER_GIB"
)


class WorldRefused(Exception):
    """The kernel does not support a world of that kind; the message says why."""


class LayerRefused(WorldRefused):
    """The world's folder can't hold an overlayfs layer; another file system may."""


@dataclass(frozen=True)
class WorldSpec:
    """The specification of a world. Paths are absolute and contain no links."""

    means: Means
    folder: Path
    """The world's own new folder, invisible to programs."""
    private: Path
    """Hidden from programs, except for its shared and readable folders."""
    shared: tuple[Path, ...] = ()
    """Folders in which writes by programs go to the real files."""
    readable: tuple[Path, ...] = ()
    """gonogo's folders that programs can only read."""
    remapped: tuple[str, ...] = ()
    """Folders that programs may write to even if owned by other users; for the first one, including subfolders."""
    hidden: tuple[str, ...] = ()
    """Files and folders that appear empty (with Landlock: that can't be read)."""
    namespace_helper: tuple[str, ...] = ()
    """Command prefix of the first process: a program allowed to create the user namespace if gonogo is not.

    It leaves that process all capabilities in the namespace.
    """
    base_trees: tuple[Path, ...] = ()
    """Trees (see ``trees.py``) copied into the world's own, which hide the real files; later ones win."""


class World:
    """A running world. Use as a context manager, which raises WorldRefused on entering."""

    def __init__(self, spec: WorldSpec, on_listener: OnListener | None = None) -> None:
        self.spec = spec
        self.notes: tuple[str, ...] = ()
        """Files that programs can't change in the world, or that are missing from it."""
        self.limit: Text | None = None
        """Why the world was ended early, or None."""
        self._on_listener = on_listener
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._thread: threading.Thread | None = None
        self._most_bytes = _layer_limit()

    @property
    def tree(self) -> Path:
        """The changes made in the world, as a tree that mirrors the root folder (an overlayfs upper directory)."""
        return self.spec.folder / "layer" / "tree"

    @property
    def has_overlay(self) -> bool:
        """Whether programs may write anywhere, and see what they wrote."""
        return self.spec.means == "namespaces"

    def __enter__(self) -> World:
        layer = self.spec.folder / "layer"
        layer.mkdir(parents=True)
        if self.has_overlay:
            for tree in self.spec.base_trees:
                copy_tree(tree, self.tree)
        self._address = str(self.spec.folder / "asked")
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with theirs, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
                _bind(listener, self.spec.folder, "asked")
                listener.listen(128)
                ends = (theirs.fileno(), listener.fileno())
                self._process = subprocess.Popen(
                    [*self.spec.namespace_helper, sys.executable, "-I", "-S", _INSIDE_FOLDER, "begin", *map(str, ends)],
                    env=_library_path_variables(), cwd="/", stdin=subprocess.DEVNULL, pass_fds=ends,
                    start_new_session=True,
                    stderr=subprocess.PIPE if self.spec.namespace_helper else None,
                )  # fmt: skip
            with contextlib.suppress(BrokenPipeError):
                ours.send(marshal.dumps(self._init_message(layer)))
            self._receive_start_reply(ours)
        except BaseException:
            ours.close()
            self._reap_process()
            raise
        self._control = ours
        self._thread = threading.Thread(target=self._receive_messages, args=(ours,), daemon=True, name="gonogo-world")
        self._thread.start()
        return self

    def _init_message(self, layer: Path) -> dict[str, object]:
        spec = self.spec
        return {
            "means": spec.means,
            "in_user_namespace": bool(spec.namespace_helper),
            "layer": str(layer),
            "private": str(spec.private),
            "shared": [str(path) for path in spec.shared],
            "readable": [str(path) for path in spec.readable],
            "remapped": list(dict.fromkeys(os.path.realpath(path) for path in spec.remapped if os.path.isdir(path))),
            "hidden": list(dict.fromkeys(os.path.realpath(path) for path in spec.hidden if os.path.exists(path))),
            "umask": _umask(),
            "processes": _MAX_PROCESSES,
            "least_memory": _MIN_MEMORY_BYTES,
        }

    def _receive_start_reply(self, control: socket.socket) -> None:
        control.settimeout(_START_TIMEOUT)
        try:
            message = control.recv(1 << 20)
        except (TimeoutError, ConnectionError):
            message = b""
        control.settimeout(None)
        what, _, rest = message.partition(b" ")
        if what != b"ready":
            kind = LayerRefused if what == b"layer" else WorldRefused
            why = rest.decode(errors="replace") or self._helper_error()
            raise kind(why or "its first process ended without a word")
        self.notes = tuple(note for note in rest.decode(errors="replace").split("\0") if note)

    def _helper_error(self) -> str:
        """The error message of the program that should have created the user namespace."""
        if self._process is None or self._process.stderr is None:
            return ""
        return self._process.stderr.read(1 << 12).decode(errors="replace").strip().partition("\n")[0]

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Kill all processes in the world. The files written in it stay in :attr:`tree`."""
        if self._control is not None:
            with contextlib.suppress(OSError):
                self._control.shutdown(socket.SHUT_RDWR)
        self._reap_process()
        if self._thread is not None:
            self._thread.join(5)
        if self._control is not None:
            self._control.close()
            self._control = None

    def _reap_process(self) -> None:
        if self._process is not None:
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            if self._process.stderr is not None:
                self._process.stderr.close()

    def command(
        self, words: Sequence[str], *, traced: bool = False, descriptors: Mapping[int, int] | None = None, cwd: str = ""
    ) -> list[str]:
        """The command line for ``subprocess`` that runs ``words`` in the world, with the usual streams.

        The relay outside the world is started with the variables given to subprocess: they must be those of
        :meth:`environment`, or nothing is started. ``cwd`` is a folder that may exist only in the world; the default
        is subprocess's working directory. ``traced``: the calls by which commands start, connect and exit
        (``inside/calls.py``) wait for the world's listener. ``descriptors``: further descriptors to pass on, and
        their numbers in the program; subprocess has to pass them too.
        """
        handed = ",".join(f"{here}={there}" for here, there in (descriptors or {}).items())
        listen = "commands" if traced else ""
        return [sys.executable, "-I", "-S", _INSIDE_FOLDER, "run", self._address, listen, handed, cwd, *words]

    @staticmethod
    def environment(variables: Mapping[str, str]) -> dict[str, str]:
        """The variables to give to subprocess, so that the program in the world has ``variables``.

        Their names are encoded, so that a program's LD_PRELOAD or LD_LIBRARY_PATH doesn't affect the relay outside.
        """
        named = {_PREFIX + name: value for name, value in variables.items() if name and "=" not in name}
        return {**_library_path_variables(), **named, _PREFIX: "1"}

    def signal(self, process: int, number: signal.Signals, *, group: bool = False) -> None:
        """Send a signal to a process or process group, given by its id in the world."""
        if self._control is not None:
            with contextlib.suppress(OSError):
                self._control.send(b"%s %d %d" % (b"group" if group else b"process", process, number))

    # -- messages of its first process, and the size of the written files

    def _receive_messages(self, control: socket.socket) -> None:
        poll = select.poll()
        poll.register(control, select.POLLIN)
        next_look = time.monotonic() + _CHECK_INTERVAL_SECONDS
        while True:
            if poll.poll(_CHECK_INTERVAL_SECONDS * 1000):
                try:
                    message, descriptors, _, _ = socket.recv_fds(control, 1 << 16, 4)
                except OSError:
                    return
                if not message:
                    return
                self._handle_message(message.decode(errors="replace"), descriptors)
            if time.monotonic() >= next_look:
                began = time.monotonic()
                self._check_layer_size()
                next_look = time.monotonic() + max(_CHECK_INTERVAL_SECONDS, 20 * (time.monotonic() - began))

    def _handle_message(self, message: str, descriptors: Sequence[int]) -> None:
        what, _, rest = message.partition(" ")
        if what == "listener" and self._on_listener is not None:
            for descriptor in descriptors:
                self._on_listener(descriptor)
            return
        for descriptor in descriptors:
            os.close(descriptor)
        if what == "limit":
            which, _, limit = rest.partition(" ")
            if which == "processes":
                self.limit = TOO_MANY_PROCESSES.format(limit=limit)
            else:
                self.limit = OUT_OF_MEMORY.format(limit=int(limit) >> 20)

    def _check_layer_size(self) -> None:
        if self.limit is not None:
            return
        try:
            state = os.statvfs(self.spec.folder)
        except OSError:
            return
        folder, private = self.spec.folder, self.spec.private
        parent = str(private.parent if folder.is_relative_to(private) else folder.parent.parent)
        if state.f_bavail * state.f_frsize < _MIN_FREE_DISK_BYTES:
            self.limit = DISK_FULL.format(path=parent)
        elif disk_usage(self.tree) > self._most_bytes:
            self.limit = WROTE_TOO_MUCH.format(limit=f"{self._most_bytes / (1 << 30):g}", path=parent)
        if self.limit is not None and self._control is not None:
            with contextlib.suppress(OSError):
                self._control.shutdown(socket.SHUT_WR)


def _bind(listener: socket.socket, folder: Path, name: str) -> None:
    """Bind to a path via a descriptor of its folder, since the kernel limits paths to 107 bytes."""
    descriptor = os.open(folder, os.O_PATH | os.O_CLOEXEC)
    try:
        listener.bind(f"/proc/self/fd/{descriptor}/{name}")
    finally:
        os.close(descriptor)


def _library_path_variables() -> dict[str, str]:
    """The library path that this Python may need, from gonogo's own environment rather than the program's."""
    value = os.environ.get("LD_LIBRARY_PATH")
    return {} if value is None else {"LD_LIBRARY_PATH": value}


def _layer_limit() -> int:
    value = os.environ.get(LAYER_LIMIT_VARIABLE)
    try:
        gib = float(value) if value else _DEFAULT_LAYER_GIB
    except ValueError:
        gib = math.nan
    if not 0 < gib < math.inf:
        raise UserError(
            translated("{name}={value}: must be a number of GiB, such as 16").format(
                name=LAYER_LIMIT_VARIABLE, value=value
            )
        )
    return int(gib * (1 << 30))


def _umask() -> int:
    """This process's umask, from /proc (Linux 4.7): the system call can only read it by changing it."""
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as file:
            for line in file:
                if line.startswith("Umask:"):
                    return int(line.split()[1], 8)
    except OSError:
        pass
    return 0o022
