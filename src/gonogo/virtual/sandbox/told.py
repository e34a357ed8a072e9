"""What a Python program only looks for is told to the rehearsal's watch (``rehearse/kept/watch.py``), too.

The watch hears of every file that is opened. A look (``os.stat`` and the like) is some fifty thousand calls while a
framework is imported: in Python's processes it isn't listened for. Here each path is told once, by an opening that does
no more than name it.
"""

from __future__ import annotations

import contextlib
import os
import posix
import sysconfig
from typing import Any

FOR_MODULES = "/././"
"""At the end of a folder's path: Python's import system lists it, which asks for modules only."""

# What lies there is told by what is opened, and by the versions of packages.
_NOT_TOLD = (
    *(f"{sysconfig.get_path(name)}/" for name in ("purelib", "platlib", "stdlib")),
    *("/proc/", "/sys/", "/dev/pts/", "/dev/null"),
)
_NAMING = getattr(os, "O_PATH", 0) | os.O_CLOEXEC
_told: set[str] = set()


def tell(path: Any) -> None:
    """Say that a path was looked for; a relative one counts from the real working directory."""
    if type(path) is not str:
        try:
            path = os.fsdecode(path)
        except TypeError:
            return
    if path in _told or path.startswith(_NOT_TOLD) or not hasattr(os, "O_PATH"):
        return
    if path.startswith("/"):
        _told.add(path)
    with contextlib.suppress(OSError, ValueError):  # it isn't there, which is what was to be told
        posix.close(posix.open(path, _NAMING))


def tell_of_looks() -> None:
    """Have this process tell of its looks, for good: one that runs without a sandbox."""
    for name in ("stat", "lstat", "access", "readlink"):
        setattr(os, name, _telling(getattr(os, name)))


def _telling(look: Any) -> Any:
    def looks(path: Any, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(path, int) and kwargs.get("dir_fd") is None:
            tell(path)
        return look(path, *args, **kwargs)

    looks.__name__ = look.__name__
    return looks
