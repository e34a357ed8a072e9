"""Copies that keep a file's holes, and moves that the sandbox's file system refuses although a disk would not.

Virtual weights are files of full length that are mostly holes, so copying their bytes would fill the disk. And
overlayfs can't move a folder from its lower layer; what is on one disk outside may be on several file systems inside.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gonogo.confinement.trees import copy_data, copy_entry, copy_tree, remove_tree
from gonogo.virtual.patching.patches import Patches, patch_os

_MIN_SPARSE_BYTES = 1 << 20
_MAX_MOVED_BYTES = 4 << 30
"""Maximum size on disk that is copied in place of a move; larger moves fail with the kernel's error."""


def install() -> Callable[[], None]:
    """Make ``shutil`` keep holes, and ``os.rename`` and ``os.replace`` move whatever a disk could; returns the
    undo."""
    patches = Patches()
    originals = {name: getattr(shutil, name) for name in ("copyfileobj", "copyfile")}
    replaced = {
        "copyfileobj": _wrap_copyfileobj(originals["copyfileobj"]),
        "copyfile": _wrap_copyfile(originals["copyfile"]),
    }
    for name, function in replaced.items():
        patches.set(shutil, name, function)
    patches.replace_everywhere([(originals[name], replaced[name]) for name in originals], excluded_modules=(shutil,))
    patch_os(patches, {name: _wrap_rename(getattr(os, name)) for name in ("rename", "replace")})
    return patches.undo


# -- copies


def _wrap_copyfileobj(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def copyfileobj(fsrc: Any, fdst: Any, *length: int, **lengths: int) -> None:
        if not _copy_stream(fsrc, fdst):
            original(fsrc, fdst, *length, **lengths)

    return copyfileobj


def _wrap_copyfile(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def copyfile(src: Any, dst: Any, *, follow_symlinks: bool = True) -> Any:
        try:
            sparse = _is_mostly_holes(os.stat(src)) and (follow_symlinks or not os.path.islink(src))
        except OSError:
            sparse = False
        if not sparse or (os.path.exists(dst) and os.path.samefile(src, dst)):
            return original(src, dst, follow_symlinks=follow_symlinks)
        with open(src, "rb") as fsrc, open(dst, "wb") as fdst:
            _copy_stream(fsrc, fdst)
        return dst

    return copyfile


def _is_mostly_holes(state: os.stat_result) -> bool:
    """True if a file is large and mostly holes."""
    return state.st_size >= _MIN_SPARSE_BYTES and state.st_blocks * 512 < state.st_size // 2


def _copy_stream(fsrc: Any, fdst: Any) -> bool:
    """Copy the data extents of a whole sparse file; returns False, without doing anything, if it isn't one."""
    try:
        reading, writing = fsrc.fileno(), fdst.fileno()
        state = os.fstat(reading)
        if not _is_mostly_holes(state) or fsrc.tell() or fdst.tell():
            return False
    except (AttributeError, OSError, ValueError):
        return False
    fdst.flush()
    copy_data(reading, writing, state.st_size)
    fdst.seek(state.st_size)
    fsrc.seek(state.st_size)
    return True


# -- moves


def _wrap_rename(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def rename_or_copy(src: Any, dst: Any, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None) -> None:
        try:
            original(src, dst, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            _copy_and_delete(_absolute_path(src, src_dir_fd), _absolute_path(dst, dst_dir_fd), original, error)

    return rename_or_copy


def _absolute_path(path: Any, folder: int | None) -> str:
    """Make a path that is relative to a directory descriptor absolute, without a trailing slash."""
    text = os.fsdecode(path)
    if folder is not None and not text.startswith("/"):
        text = f"/proc/self/fd/{folder}/{text}"
    return text.rstrip("/") or "/"


def _copy_and_delete(src: str, dst: str, rename_file: Callable[..., None], refused: OSError) -> None:
    """Move by copying next to the target. Raises ``refused`` if it is too large or the source could not be
    deleted."""
    if _disk_usage(src) > _MAX_MOVED_BYTES or not os.access(os.path.dirname(src) or ".", os.W_OK | os.X_OK):
        raise refused
    head, tail = os.path.split(dst)
    partial = os.path.join(head, f".{tail[:200]}.moving-{os.getpid()}")
    try:
        _copy_recursively(src, partial)
        rename_file(partial, dst)
    except OSError as error:
        _remove_recursively(partial)
        if error.filename is not None:
            error.filename, error.filename2 = refused.filename, refused.filename2
        raise
    _remove_recursively(src)


def _disk_usage(path: str) -> int:
    """Bytes that a file, or everything in a folder, occupies on disk."""
    state = os.lstat(path)
    total = state.st_blocks * 512
    for folder, _, names in os.walk(path) if stat.S_ISDIR(state.st_mode) else ():
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(folder, name)).st_blocks * 512
    return total


def _copy_recursively(src: str, dst: str) -> None:
    """Copy a file of any kind or a whole folder, with modes, times, owners, links and holes."""
    state = os.lstat(src)
    if stat.S_ISDIR(state.st_mode):
        os.mkdir(dst, 0o700)
        copy_tree(Path(src), Path(dst))
    else:
        copy_entry(Path(src), Path(dst), state)


def _remove_recursively(path: str) -> None:
    """Delete a file or folder, whatever the modes of its contents."""
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISDIR(os.lstat(path).st_mode):
            remove_tree(Path(path))
        else:
            os.unlink(path)
