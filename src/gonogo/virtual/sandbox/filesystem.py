"""The program's view of the file system: it may write where it likes, and nothing of the user's changes.

:func:`install` replaces the functions of ``os``, ``open`` and what else opens or moves files in Python by those of an
:class:`.overlay.Overlay`. Writers that bypass Python are given mapped paths (``native_writers.py``), and those that
nobody thought of are refused by the kernel (``write_guard.py``). Processes that multiprocessing starts afresh are given
the same (``spawned.py``); other programs that the program starts see the real files.
"""

from __future__ import annotations

import builtins
import importlib
import importlib.metadata
import io
import os
import posix
import shutil
import subprocess
import sys
import tempfile
from abc import ABCMeta
from typing import Any

from gonogo.virtual.hooks.patching import Patches
from gonogo.virtual.sandbox.native_writers import map_native_writers
from gonogo.virtual.sandbox.overlay import Overlay
from gonogo.virtual.sandbox.overlay_changes import Calls

_FUNCTIONS = (
    "stat", "lstat", "access", "readlink", "statvfs", "listxattr", "getxattr", "listdir", "scandir", "open", "mkdir",
    "symlink", "link", "mkfifo", "chmod", "fchmod", "chown", "lchown", "fchown", "utime", "setxattr", "removexattr",
    "truncate", "unlink", "remove", "rmdir", "rename", "replace", "chdir", "fchdir", "getcwd", "getcwdb",
)  # fmt: skip
_SAME_AS = {"remove": "unlink", "replace": "rename"}
_SPARSE_FROM = 1 << 20
_FileIO = io.FileIO


def install(overlay: Overlay) -> Patches:
    """Put the overlay between the program and its files; ``undo()`` of what is returned takes it away."""
    patches = Patches()
    calls = Calls(overlay)
    replaced = []
    for name in _FUNCTIONS:
        original = getattr(os, name, None)
        if original is None:
            continue
        function = _plain(getattr(calls, _SAME_AS.get(name, name)), name)
        replaced.append((original, function))
        patches.set(os, name, function)
        for supports in (os.supports_dir_fd, os.supports_fd, os.supports_follow_symlinks):
            if original in supports:
                supports.add(function)
                patches.on_undo(lambda supports=supports, function=function: supports.discard(function))  # type: ignore[misc]
    opening = _plain(calls.open_file, "open")
    replaced.append((builtins.open, opening))
    replaced.append((io.open_code, calls.open_code))
    _replace_opening(patches, calls, opening)
    patches.everywhere(replaced, but=(posix, os))
    _replace_importing(patches, calls, opening)
    _replace_accessor(patches, dict(replaced))
    _replace_copying(patches)
    _replace_temporary(patches, overlay)
    _replace_starting(patches, overlay)
    map_native_writers(patches, overlay)
    return patches


def _plain(method: Any, name: str) -> Any:
    """A function (pathlib keeps such in classes, where a bound method would do, but tools look at ``__name__``)."""

    def function(*args: Any, **kwargs: Any) -> Any:
        return method(*args, **kwargs)

    function.__name__ = function.__qualname__ = name
    function.__module__ = "os" if name != "open" else "io"
    return function


def _replace_opening(patches: Patches, calls: Calls, opening: Any) -> None:
    import _io

    class FileIOType(ABCMeta):
        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, _FileIO)

    class FileIO(_FileIO, metaclass=FileIOType):
        def __init__(self, file: Any, mode: str = "r", closefd: bool = True, opener: Any = None) -> None:
            if opener is None and not isinstance(file, int):
                opener = calls.opener
            super().__init__(file, mode, closefd, opener)

    FileIO.__module__, FileIO.__qualname__ = "_io", "FileIO"
    patches.set(io, "FileIO", FileIO)
    patches.set(_io, "open", opening)
    patches.set(io, "open_code", calls.open_code)


def _replace_importing(patches: Patches, calls: Calls, opening: Any) -> None:
    """Modules that the program wrote can be imported; no byte code is written."""
    from importlib import _bootstrap_external as machinery

    patches.set(sys, "dont_write_bytecode", True)
    patches.item(os.environ, "PYTHONDONTWRITEBYTECODE", "1")
    overlay = calls.overlay

    def stat(path: str) -> os.stat_result:
        return posix.stat(path) if overlay.untouched else calls.stat(path)

    patches.set(machinery, "_os", _Stand(posix, stat=stat, listdir=calls.list_modules, getcwd=calls.getcwd))
    patches.set(machinery, "_io", _Stand(io, open_code=calls.open_code, FileIO=io.FileIO, open=opening))
    patches.set(importlib.metadata, "os", _Stand(os, listdir=calls.list_modules))
    importlib.invalidate_caches()
    patches.on_undo(importlib.invalidate_caches)


class _Stand:
    """A module with some of its names replaced."""

    def __init__(self, module: Any, **replaced: Any) -> None:
        self.__dict__.update(replaced)
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


def _replace_accessor(patches: Patches, replaced: dict[Any, Any]) -> None:
    """Python 3.10's pathlib keeps the functions of ``os`` in a class."""
    import pathlib

    accessor = getattr(pathlib, "_NormalAccessor", None)
    if accessor is None:
        return
    for name, value in list(vars(accessor).items()):
        function = value.__func__ if isinstance(value, staticmethod) else value
        try:
            replacement = replaced.get(function)
        except TypeError:  # not hashable: no function
            continue
        if replacement is not None:
            patches.set(accessor, name, staticmethod(replacement))


def _replace_copying(patches: Patches) -> None:
    """Copies of a file that is mostly holes, as virtual weights are, have the same holes."""
    patches.set(shutil, "_use_fd_functions", False)
    copy_objects, copy_file = shutil.copyfileobj, shutil.copyfile

    def copyfileobj(fsrc: Any, fdst: Any, length: int = 0) -> None:
        if not _copy_holes(fsrc, fdst):
            copy_objects(fsrc, fdst, length) if length else copy_objects(fsrc, fdst)

    def copyfile(src: Any, dst: Any, *, follow_symlinks: bool = True) -> Any:
        try:
            state = os.stat(src)
            sparse = state.st_size >= _SPARSE_FROM and state.st_blocks * 512 < state.st_size // 2
            sparse = sparse and not (os.path.islink(src) and not follow_symlinks)
        except OSError:
            sparse = False
        if not sparse or (os.path.exists(dst) and os.path.samefile(src, dst)):
            return copy_file(src, dst, follow_symlinks=follow_symlinks)
        with open(src, "rb") as fsrc, open(dst, "wb") as fdst:
            copyfileobj(fsrc, fdst)
        return dst

    patches.set(shutil, "copyfileobj", copyfileobj)
    patches.set(shutil, "copyfile", copyfile)


def _copy_holes(fsrc: Any, fdst: Any) -> bool:
    """Copy a whole sparse file by its parts that have data; False where it isn't one, and nothing was done."""
    try:
        reading, writing = fsrc.fileno(), fdst.fileno()
        state = os.fstat(reading)
        if state.st_size < _SPARSE_FROM or state.st_blocks * 512 >= state.st_size // 2 or fsrc.tell() or fdst.tell():
            return False
    except (AttributeError, OSError, ValueError):
        return False
    fdst.flush()
    at = 0
    while at < state.st_size:
        try:
            at = os.lseek(reading, at, os.SEEK_DATA)
        except OSError:  # only a hole is left
            break
        end = os.lseek(reading, at, os.SEEK_HOLE)
        while at < end:
            block = os.pread(reading, min(end - at, 1 << 20), at)
            os.pwrite(writing, block, at)
            at += len(block)
    os.ftruncate(writing, state.st_size)
    fdst.seek(state.st_size)
    fsrc.seek(state.st_size)
    return True


def _replace_temporary(patches: Patches, overlay: Overlay) -> None:
    for variable in ("TMPDIR", "TEMP", "TMP"):
        patches.item(os.environ, variable, overlay.temporary)
    patches.set(tempfile, "tempdir", overlay.temporary)


def _replace_starting(patches: Patches, overlay: Overlay) -> None:
    """A child process started in a folder that lies in scratch only is started there."""
    start = subprocess.Popen.__init__

    def __init__(self: Any, args: Any, *rest: Any, **kwargs: Any) -> None:
        if kwargs.get("cwd") is not None:
            kwargs["cwd"] = _existing_folder(overlay, kwargs["cwd"])
        start(self, args, *rest, **kwargs)

    patches.set(subprocess.Popen, "__init__", __init__)


def _existing_folder(overlay: Overlay, folder: Any) -> Any:
    absolute = overlay.absolute(folder)
    if absolute is None:
        return folder
    try:
        posix.stat(absolute)
    except OSError:
        return overlay.real(folder)
    return folder
