"""Runs in a launcher's process: records how each child process ended, as soon as the launcher learns of it.

Launchers report this only on standard error, each in its own words, and kill the other ranks at once; a rank itself
can't record a SIGKILL. Only the standard library is needed, and no module is imported for it.
"""

from __future__ import annotations

import os
import time

from gonogo.virtual.patching.after_import import after_import

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any


def watch_children(folder: str) -> None:
    """Record in ``folder`` how the children end that this process starts by ``subprocess`` or ``multiprocessing``."""
    notes = _ExitLog(folder)
    after_import("subprocess", lambda module: _watch_launcher(_watch_subprocess, module, notes))
    after_import("multiprocessing.popen_fork", lambda module: _watch_launcher(_watch_multiprocessing, module, notes))


def _watch_launcher(watch: Any, module: ModuleType, notes: _ExitLog) -> None:
    try:
        watch(module, notes)
    except Exception:  # an unexpected version of subprocess: nothing is recorded
        return


class _ExitLog:
    """The file of exit statuses, opened when the first process ends. Never raises; stops after an error."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._owner = os.getpid()
        self._seen: set[tuple[int, int]] = set()
        self._broken = False

    def add(self, pid: int, status: int | None) -> None:
        """Record once how a process ended; does nothing in a process that was forked off the launcher."""
        if status is None or self._broken or os.getpid() != self._owner or (pid, status) in self._seen:
            return
        self._seen.add((pid, status))
        try:
            import json
            import socket

            host = socket.gethostname()
            line = json.dumps({"kind": "child", "time": time.time(), "pid": pid, "status": status, "host": host})
            path = os.path.join(self._folder, f"launcher-{host}-{self._owner}.jsonl")
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
            try:
                os.write(file, line.encode() + b"\n")
            finally:
                os.close(file)
        except Exception:
            self._broken = True


def _watch_subprocess(module: ModuleType, notes: _ExitLog) -> None:
    original = module.Popen._handle_exitstatus

    def handle_exitstatus(self: Any, *arguments: Any, **named: Any) -> Any:
        answer = original(self, *arguments, **named)
        notes.add(self.pid, self.returncode)
        return answer

    module.Popen._handle_exitstatus = handle_exitstatus


def _watch_multiprocessing(module: ModuleType, notes: _ExitLog) -> None:
    original = module.Popen.poll

    def poll(self: Any, *arguments: Any, **named: Any) -> Any:
        answer = original(self, *arguments, **named)
        notes.add(self.pid, self.returncode)
        return answer

    module.Popen.poll = poll
