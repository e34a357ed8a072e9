"""In a launcher's process: how each process that it had started ended, noted as the launcher learns of it.

Launchers tell of it on their standard error only, each in its own words, and kill the others at once; the ranks
themselves can't tell of a SIGKILL. Nothing but the standard library is needed, and nothing is imported for it.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections.abc import Callable
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any


def watch_children(folder: str) -> None:
    """Note in the folder how processes end that this one starts by ``subprocess`` or ``multiprocessing``."""
    notes = _Notes(folder)
    watched: dict[str, Callable[[ModuleType], None]] = {
        "subprocess": lambda module: _watch_subprocess(module, notes),
        "multiprocessing.popen_fork": lambda module: _watch_multiprocessing(module, notes),
    }
    for name, action in list(watched.items()):
        module = sys.modules.get(name)
        if module is not None:
            del watched[name]
            action(module)
    if watched:
        sys.meta_path.insert(0, _Finder(watched))


class _Notes:
    """The file that is appended to, opened at the first process that ends. It never raises, and gives up at a fault."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._owner = os.getpid()
        self._seen: set[tuple[int, int]] = set()
        self._broken = False

    def add(self, pid: int, status: int | None) -> None:
        """Note how a process ended, once; a process that was forked off the launcher notes nothing."""
        if status is None or self._broken or os.getpid() != self._owner or (pid, status) in self._seen:
            return
        self._seen.add((pid, status))
        try:
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


def _watch_subprocess(module: ModuleType, notes: _Notes) -> None:
    original = module.Popen._handle_exitstatus

    def handle(self: Any, *arguments: Any, **named: Any) -> Any:
        answer = original(self, *arguments, **named)
        notes.add(self.pid, self.returncode)
        return answer

    module.Popen._handle_exitstatus = handle


def _watch_multiprocessing(module: ModuleType, notes: _Notes) -> None:
    original = module.Popen.poll

    def poll(self: Any, *arguments: Any, **named: Any) -> Any:
        answer = original(self, *arguments, **named)
        notes.add(self.pid, self.returncode)
        return answer

    module.Popen.poll = poll


class _Finder(MetaPathFinder):
    """Lets the others find the module, and acts when it has been executed."""

    def __init__(self, actions: dict[str, Callable[[ModuleType], None]]) -> None:
        self._actions = actions

    def find_spec(self, name: str, path: object = None, target: ModuleType | None = None) -> ModuleSpec | None:
        action = self._actions.pop(name, None)
        if action is None:
            return None
        spec = find_spec(name)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, action)
        return spec


class _Loader(Loader):
    """The module's own loader, followed by an action that may fail without harm."""

    def __init__(self, inner: Any, action: Callable[[ModuleType], None]) -> None:
        self._inner = inner
        self._action = action

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self._inner.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self._inner
        if module.__spec__ is not None:
            module.__spec__.loader = self._inner
        self._inner.exec_module(module)
        try:
            self._action(module)
        except Exception:  # another Python's subprocess: nothing is noted
            return

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)
