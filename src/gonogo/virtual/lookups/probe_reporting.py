"""What a Python program only looks for is reported to the rehearsal's watch (``rehearse/path_access.py``), too.

The watch hears of every file that is opened. A look (``os.stat`` and the like) is some fifty thousand calls while a
framework is imported: in Python's processes it isn't listened for. Here each path is reported once, by an opening that
does no more than name it.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.metadata
import os
import posix
import sysconfig
from collections.abc import Callable
from typing import Any

from gonogo.virtual.lookups.failed_lookups import looked_for
from gonogo.virtual.patching.patches import Patches, patch_os
from gonogo.virtual.protocol.plan import FOR_MODULES

# What lies there is reported by what is opened, and by the versions of packages.
_NOT_REPORTED = (
    *(f"{sysconfig.get_path(name)}/" for name in ("purelib", "platlib", "stdlib")),
    *("/proc/", "/sys/", "/dev/pts/", "/dev/null"),
)
_NAMING = getattr(os, "O_PATH", 0) | os.O_CLOEXEC
_reported: set[str] = set()


def report_probe(path: Any) -> None:
    """Say that a path was looked for; a relative one counts from the working directory."""
    if type(path) is not str:
        try:
            path = os.fsdecode(path)
        except TypeError:
            return
    if path in _reported or path.startswith(_NOT_REPORTED) or not hasattr(os, "O_PATH"):
        return
    if path.startswith("/"):
        _reported.add(path)
    with contextlib.suppress(OSError, ValueError):  # it isn't there, which is what was to be reported
        posix.close(posix.open(path, _NAMING))


def install() -> Callable[[], None]:
    """Have this process, and those that it forks, report what they look for; returns the undo."""
    patches = Patches()
    patch_os(patches, {name: _reporting(getattr(os, name)) for name in ("stat", "lstat", "access", "readlink")})
    _follow_importing(patches)
    return patches.undo


def _reporting(look: Any) -> Any:
    @functools.wraps(look)
    def looks(path: Any, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(path, int) and kwargs.get("dir_fd") is None:
            report_probe(path)
            if type(path) is str:
                looked_for(path)
            elif hasattr(path, "__fspath__"):
                looked_for(os.fsdecode(path))
        return look(path, *args, **kwargs)

    return looks


def _follow_importing(patches: Patches) -> None:
    """The import system lists each folder on the path: a file that is no module changes nothing of what it finds."""
    from importlib import _bootstrap_external as machinery

    def list_modules(path: str) -> list[str]:
        return posix.listdir(path + FOR_MODULES)

    patches.set(machinery, "_os", _Stand(posix, listdir=list_modules))
    patches.set(importlib.metadata, "os", _Stand(os, listdir=list_modules))
    importlib.invalidate_caches()


class _Stand:
    """A module with some of its names replaced."""

    def __init__(self, module: Any, **replaced: Any) -> None:
        self.__dict__.update(replaced)
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)
