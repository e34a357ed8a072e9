"""Inspects each program that a launch script is about to start, and replaces some by a stand-in.

The kernel stops the process in ``execve`` while its path is inspected. To replace the program, the path in the
process's memory is overwritten with the path of a stub, which is short enough to fit; then the call continues.
Nothing else about the process changes: the stand-in gets its arguments, environment, folder and streams.

This serves to understand a script, not to protect against it: that is the job of its world.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shlex
import stat
from pathlib import Path

from gonogo.confinement.syscall_listener import SystemCall
from gonogo.evidence.launch.command_words import SHELLS, is_python
from gonogo.rehearse.shell import commands
from gonogo.rehearse.shell.session import MAX_NESTING, STAND_IN_PATH, ReplacedProgram, ShellSession, launcher_names
from gonogo.rehearse.shell.unreached import Process, UnreachedCommands, process_start_time

_AT_FDCWD = 0xFFFFFF9C
_MAX_SHEBANG_BYTES = 512
_EXECS_PER_STAND_IN = 2
"""A stand-in becomes Python, and then possibly the program itself: these two calls are not replaced."""
_WRAPPER_SCRIPT_TEMPLATE = '#!/bin/sh\nexec {words} "$@"\n'
_OPENAT2 = 437
_RESOLVE_IN_ROOT = 0x10


class Interception:
    """Replaces programs during one run of a script."""

    def __init__(self, session: ShellSession, unreached_commands: UnreachedCommands) -> None:
        self._session = session
        self._unreached = unreached_commands
        self.has_namespaces = False
        """Whether the script has a network and terminals of its own: then it is heard who asks for another machine."""
        self.failure: str | None = None
        """Why the script can't be followed."""
        self.has_daemons = False
        """Whether tmux or screen has run: what they start runs on when the script has ended."""
        self.stub = self.bash = ""
        """Paths in the world: of the stub, and of what ``sh`` is there, as on most clusters. Set before it runs."""
        self._names = commands.REPLACED | launcher_names()
        self._let_through: dict[Process, int] = {}
        """How many more starts of a process are let through."""
        self._replaced: dict[Process, list[str]] = {}

    def inspect_call(self, call: SystemCall) -> None:
        """Inspect a call and replace the program if necessary."""
        if call.name in ("connect", "exit_group") and self.has_namespaces:
            self._unreached.inspect_call(call, self._replaced)
        if call.name not in ("execve", "execveat"):
            return
        caller = (call.pid, process_start_time(call.pid))
        if self._let_through.get(caller, 0) > 0:
            self._let_through[caller] -= 1
            return
        at = 0 if call.name == "execve" else 1
        address = call.arguments[at]
        path = call.memory.text(call.pid, address)
        words = call.memory.pointers(call.pid, call.arguments[at + 1])
        shown = os.fsdecode(path)
        name = os.path.basename(shown)
        files = _ProcessFiles(call.pid)
        folder = _AT_FDCWD if call.name == "execve" else call.arguments[0] & 0xFFFFFFFF
        first_line = files.first_line(shown, folder)
        if first_line is None:  # no such program: the caller goes on to look elsewhere
            return
        if name in SHELLS and _shell_depth(call.pid) > MAX_NESTING:
            self.failure = f"scripts call each other {MAX_NESTING} deep: {shown}"
        target = os.path.basename(os.path.realpath(shown))
        if name in ("sh", "dash") and target not in (name, "bash"):  # sh is not bash on this machine
            self._overwrite_path(call, address, path, os.fsencode(self.bash))
            return
        command = [os.fsdecode(call.memory.text(call.pid, word)) for word in words]
        left_out = self._unreached.should_skip(command)
        if name in commands.DAEMONS:
            left_out |= not self.has_namespaces
            self.has_daemons |= self.has_namespaces
        if not (left_out or name in self._names or is_python(name) or _has_python_shebang(first_line)):
            return
        if len(words) > 2 and command[2] == STAND_IN_PATH:
            self._let_through[caller] = _EXECS_PER_STAND_IN - 1
            return
        called = command[0] if command else name
        process = _pid_in_namespace(call.pid)
        if process is None or not self._overwrite_path(call, address, path, os.fsencode(self.stub)):
            return
        self._session.record_replaced(process, ReplacedProgram(shown, called, left_out))
        self._replaced[caller] = command
        self._let_through[caller] = _EXECS_PER_STAND_IN

    def _overwrite_path(self, call: SystemCall, address: int, path: bytes, other: bytes) -> bool:
        """Overwrite a path in the process's memory; False if the new one is longer."""
        if len(other) > len(path):
            return False
        call.memory.write(call.pid, address, other + b"\0", call.still_waits)
        return True


def write_stub(path: Path, session: ShellSession) -> None:
    """Write the program that becomes the stand-in."""
    path.write_text(_WRAPPER_SCRIPT_TEMPLATE.format(words=shlex.join(session.stand_in_command("--replaced"))))
    path.chmod(0o755)


class _ProcessFiles:
    """Files as a process sees them in its own mount namespace."""

    def __init__(self, pid: int) -> None:
        self._folder = f"/proc/{pid}"

    def first_line(self, path: str, folder: int) -> bytes | None:
        """The beginning of a file; None if it isn't an executable file."""
        if not path.startswith("/"):
            base = os.readlink(f"{self._folder}/cwd" if folder == _AT_FDCWD else f"{self._folder}/fd/{folder}")
            path = f"{base}/{path}"
        try:
            descriptor = self._open_in_root(path)
        except OSError:
            return None
        with open(descriptor, "rb", buffering=0) as file:
            state = os.fstat(descriptor)
            if not stat.S_ISREG(state.st_mode) or not state.st_mode & 0o111:
                return None
            return file.read(_MAX_SHEBANG_BYTES)

    def _open_in_root(self, path: str) -> int:
        root = os.open(f"{self._folder}/root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            how = (ctypes.c_uint64 * 3)(os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK, 0, _RESOLVE_IN_ROOT)
            libc = ctypes.CDLL(None, use_errno=True)
            descriptor = libc.syscall(
                ctypes.c_long(_OPENAT2), ctypes.c_int(root), os.fsencode(path), ctypes.byref(how), ctypes.c_size_t(24)
            )
            if descriptor < 0:
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), path)
            return int(descriptor)
        finally:
            os.close(root)


def _has_python_shebang(start: bytes) -> bool:
    """Whether a file has a shebang for Python; pip writes two lines for a long path."""
    if not start.startswith(b"#!"):
        return False
    first, _, rest = start.partition(b"\n")
    return b"python" in first or rest.startswith(b"'''exec'")


def _pid_in_namespace(pid: int) -> int | None:
    """A process's id in its own PID namespace."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
        for line in file:
            if line.startswith("NSpid:"):
                return int(line.split()[-1])
    return None


def _shell_depth(pid: int) -> int:
    """How deeply shells are nested, from bash's SHLVL."""
    with contextlib.suppress(OSError, ValueError), open(f"/proc/{pid}/environ", "rb") as file:
        for entry in file.read().split(b"\0"):
            if entry.startswith(b"SHLVL="):
                return int(entry[6:])
    return 0
