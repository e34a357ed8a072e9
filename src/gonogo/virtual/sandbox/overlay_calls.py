# ruff: noqa: D102 (each method does what the function of its name in os does)
"""The calls of ``os`` and ``open``, answered by an :class:`~gonogo.virtual.sandbox.overlay.Overlay`.

Each method takes what the function of the same name takes, and raises what it raises, with the path as the program
said it.
"""

from __future__ import annotations

import errno
import io
import os
import posix
import stat as modes
from collections.abc import Callable, Iterator
from typing import Any

from gonogo.virtual.sandbox.overlay import Overlay
from gonogo.virtual.sandbox.told import FOR_MODULES, tell

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_TMPFILE = getattr(os, "O_TMPFILE", 0)
_open_file = io.open


def error_of(number: int, path: Any) -> OSError:
    """The error of that number, naming the path as the program said it."""
    return OSError(number, os.strerror(number), path)


class Entry:
    """What ``os.scandir`` yields for a folder that lies partly in scratch."""

    __slots__ = ("_calls", "_full", "name", "path")

    def __init__(self, calls: ReadingCalls, full: str, name: Any, path: Any) -> None:
        self._calls, self._full, self.name, self.path = calls, full, name, path

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        return self._calls.stat(self._full, follow_symlinks=follow_symlinks)

    def inode(self) -> int:
        return self.stat(follow_symlinks=False).st_ino

    def _is(self, test: Callable[[int], bool], follow: bool) -> bool:
        try:
            return test(self.stat(follow_symlinks=follow).st_mode)
        except FileNotFoundError:
            return False

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        return self._is(modes.S_ISDIR, follow_symlinks)

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        return self._is(modes.S_ISREG, follow_symlinks)

    def is_symlink(self) -> bool:
        return self._is(modes.S_ISLNK, False)

    def is_junction(self) -> bool:
        return False

    def __fspath__(self) -> Any:
        return self.path

    def __repr__(self) -> str:
        return f"<DirEntry {self.name!r}>"


class Entries:
    """The iterator and context manager that ``os.scandir`` returns."""

    def __init__(self, entries: list[Entry]) -> None:
        self._entries = iter(entries)

    def __iter__(self) -> Iterator[Entry]:
        return self

    def __next__(self) -> Entry:
        return next(self._entries)

    def __enter__(self) -> Entries:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        self._entries = iter(())


class ReadingCalls:
    """The calls that change nothing, and ``open``, bound to one overlay."""

    def __init__(self, overlay: Overlay) -> None:
        self.overlay = overlay

    # -- where a path is

    def _find(self, path: Any, dir_fd: int | None, follow: bool) -> str | None:
        """The canonical path, or None where the call is left to the system."""
        self.overlay.refresh()
        absolute = self.overlay.absolute(path, dir_fd)
        if absolute is None or self.overlay.is_passed(absolute):
            return None
        found = self.overlay.canonical(absolute, follow)
        return None if self.overlay.is_passed(found) else found

    def _read(self, function: Callable[..., Any], path: Any, *args: Any, follow: bool = True, **kwargs: Any) -> Any:
        """Run a reading call where the file lies."""
        if isinstance(path, int) or self.overlay.untouched:
            if function is not posix.open and not isinstance(path, int):
                tell(path)
            return function(path, *args, **kwargs)
        dir_fd = kwargs.get("dir_fd")
        found = self._find(path, dir_fd, follow)
        if found is None:
            return self._native(function, path, *args, **kwargs)
        place = self.overlay.place(found)
        if place is None:
            raise self.overlay.missing(found, path)
        kwargs.pop("dir_fd", None)
        return self._naming(path, function, place, *args, **kwargs)

    def _native(self, function: Callable[..., Any], path: Any, *args: Any, **kwargs: Any) -> Any:
        absolute = self.overlay.absolute(path, kwargs.get("dir_fd"))
        if absolute is None:
            return function(path, *args, **kwargs)
        kwargs.pop("dir_fd", None)
        return self._naming(path, function, self.overlay.canonical(absolute, False), *args, **kwargs)

    @staticmethod
    def _naming(said: Any, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except OSError as error:
            error.filename = said
            raise

    def _change(self, function: Callable[..., Any], path: Any, *args: Any, follow: bool = True, **kwargs: Any) -> Any:
        """Run a call that changes a file's metadata (mode, owner, times, attributes) on its copy in scratch."""
        if isinstance(path, int):
            place = posix.readlink(f"/proc/self/fd/{path}")
            if not place.startswith("/") or self.overlay.is_passed(place):
                return function(path, *args, **kwargs)
            found: str | None = place
        else:
            found = self._find(path, kwargs.pop("dir_fd", None), follow)
            if found is None:
                return self._native(function, path, *args, **kwargs)
        target = self.overlay.copy_up(found or "", path, only_metadata=True)
        return None if target is None else self._naming(path, function, target, *args, **kwargs)

    # -- reading

    def stat(self, path: Any, *, dir_fd: int | None = None, follow_symlinks: bool = True) -> os.stat_result:
        if isinstance(path, int):
            return posix.stat(path)
        kwargs = {"dir_fd": dir_fd, "follow_symlinks": follow_symlinks}
        result: os.stat_result = self._read(posix.stat, path, follow=follow_symlinks, **kwargs)
        return result

    def lstat(self, path: Any, *, dir_fd: int | None = None) -> os.stat_result:
        return self.stat(path, dir_fd=dir_fd, follow_symlinks=False)

    def access(
        self,
        path: Any,
        mode: int,
        *,
        dir_fd: int | None = None,
        effective_ids: bool = False,
        follow_symlinks: bool = True,
    ) -> bool:
        """Writing is always granted where the file is there: it is the rehearsal's copy that will be written."""
        kwargs: dict[str, Any] = {"dir_fd": dir_fd, "effective_ids": effective_ids, "follow_symlinks": follow_symlinks}
        try:
            granted: bool = self._read(posix.access, path, mode & ~os.W_OK, follow=follow_symlinks, **kwargs)
        except OSError:
            return False
        return granted

    def readlink(self, path: Any, *, dir_fd: int | None = None) -> Any:
        target = self._read(posix.readlink, path, follow=False, dir_fd=dir_fd)
        return os.fsencode(target) if isinstance(path, bytes) else os.fsdecode(target)

    def statvfs(self, path: Any) -> os.statvfs_result:
        result: os.statvfs_result = self._read(posix.statvfs, path)
        return result

    def listxattr(self, path: Any = None, *, follow_symlinks: bool = True) -> list[str]:
        result: list[str] = self._read(
            posix.listxattr, path or ".", follow=follow_symlinks, follow_symlinks=follow_symlinks
        )
        return result

    def getxattr(self, path: Any, attribute: Any, *, follow_symlinks: bool = True) -> bytes:
        result: bytes = self._read(
            posix.getxattr, path, attribute, follow=follow_symlinks, follow_symlinks=follow_symlinks
        )
        return result

    def _folder(self, path: Any, asked: str = "") -> tuple[str, list[str]] | None:
        """A merged folder's canonical path and names; None where the system is to list it."""
        if self.overlay.untouched:
            return None
        if isinstance(path, int):
            place = self.overlay.path_of(path)
            found = None if place is None or self.overlay.is_passed(place) else place
        else:
            found = self._find(path, None, True)
        if found is None:
            return None
        place = self.overlay.place(found)
        if place is None:
            raise self.overlay.missing(found, path)
        if not modes.S_ISDIR(posix.lstat(place).st_mode):
            raise error_of(errno.ENOTDIR, path)
        names = self.overlay.names(found, asked)
        if names is None and not isinstance(path, int) and found != self.overlay.absolute(path):
            names = posix.listdir(place + asked)  # the path leads there by way of scratch
        return None if names is None else (found, names)

    def listdir(self, path: Any = None) -> list[Any]:
        said = "." if path is None else path
        merged = self._folder(said)
        if merged is None:
            return self._listed(posix.listdir, said)  # type: ignore[no-any-return]
        return [os.fsencode(name) for name in merged[1]] if isinstance(said, bytes) else merged[1]

    def list_modules(self, path: str) -> list[str]:
        """As ``listdir``, for the import system, which asks for modules only."""
        merged = self._folder(path, FOR_MODULES)
        return self._listed(posix.listdir, path + FOR_MODULES) if merged is None else merged[1]

    def scandir(self, path: Any = None) -> Any:
        said = "." if path is None else path
        merged = self._folder(said)
        if merged is None:
            return self._listed(posix.scandir, said)
        folder, names = merged
        entries = []
        for name in names:
            shown: Any = os.fsencode(name) if isinstance(said, bytes) else name
            inside = shown if isinstance(said, int) else os.path.join(os.fspath(said), shown)
            entries.append(Entry(self, f"{folder if folder != '/' else ''}/{name}", shown, inside))
        return Entries(entries)

    def _listed(self, function: Callable[..., Any], said: Any) -> Any:
        """List a folder that lies wholly in the real file system, whatever the working directory is."""
        if isinstance(said, int) or self.overlay.cwd_in_upper is None:
            return function(said)
        return self._native(function, said)

    # -- opening

    def open(self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if not flags & (_WRITING | _TMPFILE & ~os.O_DIRECTORY):
            fd: int = self._read(posix.open, path, flags, mode, follow=not flags & os.O_NOFOLLOW, dir_fd=dir_fd)
            return fd
        exclusive = flags & os.O_CREAT and flags & os.O_EXCL
        found = self._find(path, dir_fd, not (flags & os.O_NOFOLLOW or exclusive))
        if found is None:
            fd = self._native(posix.open, path, flags, mode, dir_fd=dir_fd)
            return fd
        place = self._to_write(found, path, flags)
        fd = self._naming(path, posix.open, place, flags, mode)
        if place != found:
            self.overlay.count(place)
        return fd

    def _to_write(self, found: str, said: Any, flags: int) -> str:
        """Where a file is opened that the program wants to write."""
        overlay = self.overlay
        if overlay.in_upper(found):
            return overlay.upper + found
        state = overlay.lower(found)
        if state is None:
            if not flags & os.O_CREAT:
                raise overlay.missing(found, said)
            return overlay.prepare_parent(found, said)
        if flags & os.O_CREAT and flags & os.O_EXCL:
            raise error_of(errno.EEXIST, said)
        if modes.S_ISDIR(state.st_mode):
            if flags & _TMPFILE == _TMPFILE:
                return overlay.copy_up(found, said) or found
            raise error_of(errno.EISDIR, said)
        if not modes.S_ISREG(state.st_mode):
            return found
        if flags & os.O_TRUNC:
            place = overlay.prepare_parent(found, said)
            posix.close(
                posix.open(place, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, modes.S_IMODE(state.st_mode) | 0o600)
            )
            return place
        if flags & (os.O_WRONLY | os.O_RDWR):
            return overlay.copy_up(found, said) or found
        return found

    def open_file(
        self,
        file: Any,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        closefd: bool = True,
        opener: Any = None,
    ) -> Any:
        """As ``open``: the file keeps the name that the program gave it."""
        if opener is None and not isinstance(file, int):
            opener = self.opener
        return _open_file(file, mode, buffering, encoding, errors, newline, closefd, opener)

    def opener(self, path: Any, flags: int) -> int:
        """What ``open(..., opener=)`` takes."""
        return self.open(path, flags, 0o666)

    def open_code(self, path: str) -> Any:
        return self.open_file(path, "rb")
