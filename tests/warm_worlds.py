"""Worlds whose Python programs find torch imported: forked, with all that confines them, in place of started.

Importing torch is most of what a short rehearsal costs. Here the first process of a world is a fork of a process that
has imported what each worker imports first. It makes the world as ever, and so prepares each program for it (namespaces
or Landlock, seccomp, descriptors, limits); but where that is this Python with ``-c``, it runs the code itself and does
not become another Python. As with workers that gonogo's own server forks (``gonogo.virtual.ranks.fork_server``),
nothing of a session exists before the fork.

``python warm_worlds.py serve LIFE SOCKET`` is that process; ``python warm_worlds.py gonogo SOCKET WORDS…`` is
``python -m gonogo WORDS…`` with such worlds.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import importlib
import multiprocessing.process
import os
import random
import runpy
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

_MAX_PACKET = 64
_GONOGO = [sys.executable, "-m", "gonogo"]
_REHEARSING = ("rehearse", "cure", "plan", "bisect", "prepare", "compare", "mcp", "ui", "diagnose", "skills")
"""Commands of gonogo that may make a world."""
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


# -- in the process that makes a world --------------------------------------------------------------------------------


class _FirstProcess:
    """What ``subprocess.Popen`` is for a world: its first process, which is not this one's child."""

    stderr = None

    def __init__(self, server: str, control: int, listener: int) -> None:
        self._told = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._told.connect(server)
        socket.send_fds(self._told, [b"begin"], [control, listener, 2])
        self.pid = struct.unpack("=i", self._told.recv(4))[0]
        self._code: int | None = None

    def wait(self, timeout: float | None = None) -> int:
        if self._code is None:
            self._told.settimeout(timeout)
            try:
                status = self._told.recv(4)
            except TimeoutError:
                raise subprocess.TimeoutExpired("a world's first process", timeout or 0.0) from None
            self._code = struct.unpack("=i", status)[0] if len(status) == 4 else -signal.SIGKILL
            self._told.close()
        return self._code

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)


def _popen(server: Callable[[], str]) -> type[subprocess.Popen[Any]]:
    """``subprocess.Popen`` that has first processes forked, and gonogo's commands have theirs forked."""

    class Popen(subprocess.Popen):  # type: ignore[type-arg]
        def __new__(cls, args: Any, *rest: Any, **options: Any) -> Any:
            if _begins_world(args) and options.get("stderr") is None:
                return _FirstProcess(server(), *options["pass_fds"])
            return super().__new__(cls)

        def __init__(self, args: Any, *rest: Any, **options: Any) -> None:
            if isinstance(args, list) and args[:3] == _GONOGO and args[3:4] and args[3] in _REHEARSING:
                args = [sys.executable, __file__, "gonogo", server(), *args[3:]]
            super().__init__(args, *rest, **options)

    return Popen


def _begins_world(args: Any) -> bool:
    return isinstance(args, list) and args[:3] == [sys.executable, "-I", "-S"] and args[4:5] == ["begin"]


class WarmWorlds:
    """The process from which first processes are forked; started when the first is asked for."""

    def __init__(self) -> None:
        self._popen: subprocess.Popen[bytes] | None = None
        self._life: int | None = None
        self._folder = Path(tempfile.mkdtemp(prefix="gonogo-warm-"))
        self._started = threading.Lock()

    def server(self) -> str:
        """The path of its socket."""
        path = self._folder / "socket"
        with self._started:
            if self._popen is None:
                theirs, self._life = os.pipe()
                self._popen = _POPEN(
                    [sys.executable, __file__, "serve", str(theirs), str(path)],
                    pass_fds=[theirs],
                    cwd="/",
                    env={**os.environ, **_FIXED},
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    start_new_session=True,
                )
                os.close(theirs)
            while not path.exists():
                assert self._popen.poll() is None, "the process from which worlds are forked did not start"
                time.sleep(0.01)
        return str(path)

    def close(self) -> None:
        if self._popen is not None and self._life is not None:
            os.close(self._life)
            self._popen.wait()
        shutil.rmtree(self._folder)

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        """Within it, the worlds that this process and its commands make are warm."""
        subprocess.Popen = _popen(self.server)  # type: ignore[misc]
        try:
            yield
        finally:
            subprocess.Popen = _POPEN  # type: ignore[misc]


_POPEN = subprocess.Popen


def _gonogo(server: str, words: list[str]) -> None:
    """``python -m gonogo WORDS…`` with warm worlds."""
    subprocess.Popen = _popen(lambda: server)  # type: ignore[misc]
    sys.path[0] = os.getcwd()
    sys.argv = ["gonogo", *words]
    sys.orig_argv = [*_GONOGO, *words]
    runpy.run_module("gonogo", run_name="__main__", alter_sys=True)


# -- in the process from which first processes are forked -------------------------------------------------------------


def _serve(life: int, path: str) -> list[str]:
    """Fork first processes until ``life`` is closed; comes back in each, with its arguments."""
    children: dict[int, socket.socket] = {}
    woken, wake = os.pipe()
    os.set_blocking(woken, False)
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake)
    server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    server.bind(f"{path}.partial")
    server.listen(128)
    os.rename(f"{path}.partial", path)
    while True:
        ready, _, _ = select.select([server, woken, life], [], [])
        if life in ready:
            os._exit(0)
        if woken in ready:
            os.read(woken, 4096)
            with contextlib.suppress(ChildProcessError):
                while True:
                    pid, status = os.waitpid(-1, os.WNOHANG)
                    if not pid:
                        break
                    with contextlib.suppress(OSError), children.pop(pid) as ended:
                        ended.send(struct.pack("=i", os.waitstatus_to_exitcode(status)))
        if server not in ready:
            continue
        asks, _ = server.accept()
        packet, descriptors, _, _ = socket.recv_fds(asks, _MAX_PACKET, 3)
        if not packet:
            asks.close()
            continue
        control, listener, errors = descriptors
        pid = os.fork()
        if not pid:
            os.setsid()
            os.dup2(errors, 2)
            signal.set_wakeup_fd(-1)
            for descriptor in (woken, wake, errors, life):
                os.close(descriptor)
            for other in (server, asks, *children.values()):
                other.close()
            return [str(control), str(listener)]
        for descriptor in descriptors:
            os.close(descriptor)
        children[pid] = asks
        with contextlib.suppress(OSError):
            asks.send(struct.pack("=i", pid))


def _have_programs_forked(fresh: dict[bytes, bytes]) -> None:
    """Have first processes run the code of a Python that is ``sys.executable -c`` themselves."""
    from gonogo.confinement.inside import init

    start = init.WorldServer._exec_program
    executable = os.fsencode(sys.executable)

    def become(self: Any, words: list[bytes], environment: list[bytes], *rest: Any) -> Any:
        variables = dict(entry.split(b"=", 1) for entry in environment if b"=" in entry)
        if words[0] != executable or words[1] != b"-c" or _read_at_start(variables) != fresh:
            start(self, words, environment, *rest)
        try:
            self._prepare_process(*rest)
        except BaseException as error:
            os.write(2, f"gonogo: {words[0]!r} could not be started: {error!r}\n".encode())
            os._exit(126)
        raise _Started([os.fsdecode(word) for word in words], variables)

    init.WorldServer._exec_program = become  # type: ignore[method-assign, assignment]


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
    os.environb.clear()
    os.environb.update(environment)
    time.tzset()
    tempfile.tempdir = None
    multiprocessing.process.ORIGINAL_DIR = os.getcwd()  # type: ignore[attr-defined]
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


def _import_all(life: int, path: str) -> tuple[list[str], list[str]]:
    """Import, and serve; comes back in each first process, with its arguments and what ``sys.path`` began with."""
    fresh = _read_at_start(os.environb)
    begins = ["", *sys.path[1:]]
    sys.path[0:1] = []
    sys.path.append(str(Path(__file__).parents[1] / "src"))
    from gonogo.virtual.ranks.fork_server import is_alone
    from gonogo.virtual.ranks.importing import import_worker

    import_worker()
    for name in _IMPORTED_WITH_IT:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    if not is_alone():
        sys.exit("a fork would leave the other threads of this process behind")
    _have_programs_forked(fresh)
    gc.freeze()
    return _serve(life, path), begins


def _begin(arguments: list[str]) -> None:
    """The first process of a world. Raises what says which program a process of it is to be."""
    from gonogo.confinement.inside import init

    libraries = os.environ.get("LD_LIBRARY_PATH")
    os.environ.clear()
    if libraries is not None:
        os.environ["LD_LIBRARY_PATH"] = libraries
    init.main(arguments)


if __name__ == "__main__" and sys.argv[1] == "gonogo":
    _gonogo(sys.argv[2], sys.argv[3:])
elif __name__ == "__main__":
    _arguments, _path = _import_all(int(sys.argv[2]), sys.argv[3])
    try:
        _begin(_arguments)
    except _Started as _started:
        _words, _variables = _started.words, _started.environment
    except BaseException:
        traceback.print_exc()
        os._exit(errno.EIO)
    _globals = _as_in_a_new_process(_words, _variables, _path)
    exec(compile(_words[2], "<string>", "exec"), _globals)
