"""Worlds whose Python programs find torch imported: forked, with all that confines them, in place of started.

Importing torch is most of what a short rehearsal costs. Here the first process of a world is a fork of a process that
has imported what each worker imports first. It makes the world as ever, and so prepares each program for it (namespaces
or Landlock, seccomp, descriptors, limits); but where that is this Python with ``-c``, it runs the code itself and does
not become another Python. As with workers that gonogo's own server forks (``gonogo.virtual.ranks.fork_server``),
nothing of a session exists before the fork.

"""

from __future__ import annotations

import contextlib
import errno
import importlib
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

_MAX_PACKET = 64
_AT_START = (
    "PYTHON", "LD_", "LC_", "LANG", "OMP_", "KMP_", "MKL_", "OPENBLAS_", "MALLOC_", "GLIBC_", "TORCH_LOGS",
    "TORCH_DEVICE", "TORCHDYNAMO", "TORCHINDUCTOR_", "PYTORCH_JIT", "TRITON_", "ATEN_", "DNNL_", "NUMPY_", "NPY_",
)  # fmt: skip
"""What is read as Python starts or torch is imported: a program to which one of these is set otherwise is started."""
_MAY_DIFFER = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
_FIXED = {
    "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
}  # fmt: skip
"""What gonogo sets for its workers. It holds, too, for a program to which they are not set at all."""
_IMPORTED_WITH_IT = ("mpmath", "networkx", "psutil", "pydantic", "sympy", "yaml")
"""What transformers and its like import beside torch that asks for no device, and that gonogo patches nothing of."""


class _Started(BaseException):
    """Leaves all frames of the world's first process, in the process that is to be the program."""

    def __init__(self, words: list[str], environment: dict[bytes, bytes]) -> None:
        self.words = words
        self.environment = environment


# -- in the process that runs the tests -------------------------------------------------------------------------------


class _FirstProcess:
    """What ``subprocess.Popen`` is for a world: its first process, a grandchild of this one."""

    def __init__(self, pid: int, ended: socket.socket) -> None:
        self.pid = pid
        self.stderr = None
        self._ended = ended
        self._code: int | None = None

    def wait(self, timeout: float | None = None) -> int:
        if self._code is None:
            self._ended.settimeout(timeout)
            try:
                status = self._ended.recv(4)
            except TimeoutError:
                raise subprocess.TimeoutExpired("a world's first process", timeout or 0.0) from None
            self._code = struct.unpack("=i", status)[0] if len(status) == 4 else -signal.SIGKILL
            self._ended.close()
        return self._code

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)


class WarmWorlds:
    """The process from which first processes are forked; started when the first is asked for."""

    def __init__(self) -> None:
        self._popen: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None

    def popen(self, command: list[str], **options: Any) -> Any:
        """As ``subprocess.Popen``, for all that a world starts."""
        if command[0] == sys.executable and command[4:5] == ["begin"] and options.get("stderr") is None:
            control, listener = options["pass_fds"]
            return self._fork(control, listener)
        return subprocess.Popen(command, **options)

    def _fork(self, control: int, listener: int) -> _FirstProcess:
        if self._channel is None:
            self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                self._popen = subprocess.Popen(
                    [sys.executable, __file__, str(theirs.fileno())], pass_fds=[theirs.fileno()], cwd="/",
                    env={**os.environ, **_FIXED},
                    stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True,
                )  # fmt: skip
        ended, tells = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with tells:
            socket.send_fds(self._channel, [b"."], [control, listener, tells.fileno(), 2])
        return _FirstProcess(struct.unpack("=i", ended.recv(4))[0], ended)

    def close(self) -> None:
        if self._channel is not None and self._popen is not None:
            self._channel.close()
            self._popen.kill()
            self._popen.wait()
            self._channel = self._popen = None

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        """Within it, the worlds that this process makes are warm."""
        from gonogo.confinement import world

        own = SimpleNamespace(**{**vars(subprocess), "Popen": self.popen})
        with mock.patch.object(world, "subprocess", own):
            yield


# -- in the process from which first processes are forked -------------------------------------------------------------


def _serve(channel: socket.socket) -> None:
    """Fork first processes; comes back in each. Ends with the other end of the channel."""
    children: dict[int, socket.socket] = {}
    woken, wake = os.pipe()
    os.set_blocking(woken, False)
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake)
    import select

    while True:
        ready, _, _ = select.select([channel, woken], [], [])
        if woken in ready:
            os.read(woken, 4096)
            with contextlib.suppress(ChildProcessError):
                while True:
                    pid, status = os.waitpid(-1, os.WNOHANG)
                    if not pid:
                        break
                    with contextlib.suppress(OSError), children.pop(pid) as ended:
                        ended.send(struct.pack("=i", os.waitstatus_to_exitcode(status)))
        if channel in ready:
            packet, descriptors, _, _ = socket.recv_fds(channel, _MAX_PACKET, 4)
            if not packet:
                os._exit(0)
            control, listener, tells, errors = descriptors
            pid = os.fork()
            if not pid:
                os.setsid()
                os.dup2(errors, 2)
                signal.set_wakeup_fd(-1)
                for descriptor in (woken, wake, tells, errors):
                    os.close(descriptor)
                channel.close()
                for ended in children.values():
                    ended.close()
                sys.argv = ["", str(control), str(listener)]
                return
            for descriptor in (control, listener, errors):
                os.close(descriptor)
            children[pid] = socket.socket(fileno=tells)
            children[pid].send(struct.pack("=i", pid))


def _have_programs_forked(fresh: dict[bytes, bytes]) -> None:
    """Have first processes run the code of a Python that is ``sys.executable -c`` themselves."""
    from gonogo.confinement.inside import init

    start = init.WorldServer._become
    executable = os.fsencode(sys.executable)

    def become(self: Any, words: list[bytes], environment: list[bytes], *rest: Any) -> Any:
        variables = dict(entry.split(b"=", 1) for entry in environment if b"=" in entry)
        if words[0] != executable or words[1] != b"-c" or _read_at_start(variables) != fresh:
            start(self, words, environment, *rest)
        try:
            self._prepare(*rest)
        except BaseException as error:
            os.write(2, f"gonogo: {words[0]!r} could not be started: {error!r}\n".encode())
            os._exit(126)
        raise _Started([os.fsdecode(word) for word in words], variables)

    init.WorldServer._become = become  # type: ignore[method-assign, assignment]


def _read_at_start(variables: Any) -> dict[bytes, bytes]:
    prefixes = tuple(name.encode() for name in _AT_START)
    may_differ = {name.encode(): None for name in _MAY_DIFFER}
    fixed = {name.encode(): value.encode() for name, value in _FIXED.items()}
    return {
        name: value
        for name, value in variables.items()
        if name.startswith(prefixes) and name not in may_differ and fixed.get(name) != value
    }


def _as_in_a_new_process(words: list[str], environment: dict[bytes, bytes], path: list[str]) -> dict[str, Any]:
    """The globals of the program's ``__main__``; what a process finds out once is forgotten."""
    import random
    import tempfile

    os.environb.clear()
    os.environb.update(environment)
    time.tzset()
    tempfile.tempdir = None
    random.seed()
    numbers = sys.modules.get("numpy.random")
    if numbers is not None:
        numbers.seed()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    sys.dont_write_bytecode = b"PYTHONDONTWRITEBYTECODE" in environment
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(write_through=b"PYTHONUNBUFFERED" in environment)  # type: ignore[union-attr]
    sys.argv = ["-c", *words[3:]]
    sys.orig_argv = words
    sys.path[:] = path
    main = sys.modules["__main__"] = ModuleType("__main__")
    main.__dict__["__builtins__"] = __builtins__
    return main.__dict__


if __name__ == "__main__":
    import gc

    _path = ["", *sys.path[1:]]
    sys.path[0:1] = []
    _channel = socket.socket(fileno=int(sys.argv[1]))
    _fresh = _read_at_start(os.environb)
    sys.path.append(str(Path(__file__).parents[1] / "src"))
    from gonogo.virtual.ranks.fork_server import is_alone
    from gonogo.virtual.ranks.importing import import_worker

    import_worker()
    for _name in _IMPORTED_WITH_IT:
        with contextlib.suppress(ImportError):
            importlib.import_module(_name)
    if not is_alone():
        sys.exit("a fork would leave the other threads of this process behind")
    _have_programs_forked(_fresh)
    gc.freeze()
    _serve(_channel)
    try:
        from gonogo.confinement.inside import init

        _libraries = os.environ.get("LD_LIBRARY_PATH")
        os.environ.clear()
        if _libraries is not None:
            os.environ["LD_LIBRARY_PATH"] = _libraries
        init.main(sys.argv[1:])
    except _Started as _started:
        _words, _variables = _started.words, _started.environment
    except BaseException:
        import traceback

        traceback.print_exc()
        os._exit(errno.EIO)
    _globals = _as_in_a_new_process(_words, _variables, _path)
    exec(compile(_words[2], "<string>", "exec"), _globals)
