# ruff: noqa: D102 (each method does what the function of its name in os does)
"""The calls of ``os`` that make, change, move and remove files, answered by an overlay."""

from __future__ import annotations

import errno
import os
import posix
import stat as modes
from collections.abc import Callable
from typing import Any

from gonogo.virtual.sandbox.overlay_calls import ReadingCalls, error_of


class Calls(ReadingCalls):
    """All calls, bound to one overlay."""

    # -- making

    def _new(self, path: Any, dir_fd: int | None) -> str | None:
        """The place in scratch for something that must not be there yet; None where the system is to make it."""
        found = self._find(path, dir_fd, False)
        if found is None:
            return None
        if self.overlay.place(found) is not None:
            raise error_of(errno.EEXIST, path)
        return self.overlay.prepare_parent(found, path)

    def mkdir(self, path: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        place = self._new(path, dir_fd)
        if place is None:
            return self._native(posix.mkdir, path, mode, dir_fd=dir_fd)  # type: ignore[no-any-return]
        self._naming(path, posix.mkdir, place, mode)
        self.overlay.changed_links()

    def symlink(self, src: Any, dst: Any, target_is_directory: bool = False, *, dir_fd: int | None = None) -> None:
        place = self._new(dst, dir_fd)
        if place is None:
            absolute = self.overlay.absolute(dst, dir_fd)
            return posix.symlink(src, absolute or dst)
        posix.symlink(src, place)
        self.overlay.changed_links()

    def link(
        self,
        src: Any,
        dst: Any,
        *,
        src_dir_fd: int | None = None,
        dst_dir_fd: int | None = None,
        follow_symlinks: bool = True,
    ) -> None:
        source = self._find(src, src_dir_fd, follow_symlinks)
        if source is not None:
            origin = self.overlay.place(source)
            if origin is None:
                raise self.overlay.missing(source, src)
        place = self._new(dst, dst_dir_fd) or self.overlay.absolute(dst, dst_dir_fd) or dst
        if source is None:
            origin = self.overlay.absolute(src, src_dir_fd) or src
        elif modes.S_ISDIR(posix.lstat(origin or source).st_mode):
            raise error_of(errno.EPERM, src)
        else:
            origin = self.overlay.copy_up(source, src)
        self._naming(src, posix.link, origin, place, follow_symlinks=False)
        self.overlay.changed_links()

    def mkfifo(self, path: Any, mode: int = 0o666, *, dir_fd: int | None = None) -> None:
        place = self._new(path, dir_fd)
        if place is None:
            return self._native(posix.mkfifo, path, mode, dir_fd=dir_fd)  # type: ignore[no-any-return]
        posix.mkfifo(place, mode)

    # -- changing

    def chmod(self, path: Any, mode: int, *, dir_fd: int | None = None, follow_symlinks: bool = True) -> None:
        self._change(posix.chmod, path, mode, dir_fd=dir_fd)

    def fchmod(self, fd: int, mode: int) -> None:
        self._change(posix.chmod, fd, mode)

    def chown(self, path: Any, uid: int, gid: int, *, dir_fd: int | None = None, follow_symlinks: bool = True) -> None:
        kwargs: dict[str, Any] = {} if isinstance(path, int) else {"dir_fd": dir_fd, "follow_symlinks": follow_symlinks}
        self._change(posix.chown, path, uid, gid, follow=follow_symlinks, **kwargs)

    def lchown(self, path: Any, uid: int, gid: int) -> None:
        self.chown(path, uid, gid, follow_symlinks=False)

    def fchown(self, fd: int, uid: int, gid: int) -> None:
        self._change(posix.chown, fd, uid, gid)

    def utime(
        self, path: Any, times: Any = None, *, dir_fd: int | None = None, follow_symlinks: bool = True, **ns: Any
    ) -> None:
        kwargs: dict[str, Any] = dict(ns) if ns else {"times": times}
        if not isinstance(path, int):
            kwargs |= {"dir_fd": dir_fd, "follow_symlinks": follow_symlinks}
        self._change(posix.utime, path, follow=follow_symlinks, **kwargs)

    def setxattr(self, path: Any, attribute: Any, value: Any, flags: int = 0, *, follow_symlinks: bool = True) -> None:
        self._change(
            posix.setxattr, path, attribute, value, flags, follow=follow_symlinks, follow_symlinks=follow_symlinks
        )

    def removexattr(self, path: Any, attribute: Any, *, follow_symlinks: bool = True) -> None:
        self._change(posix.removexattr, path, attribute, follow=follow_symlinks, follow_symlinks=follow_symlinks)

    def truncate(self, path: Any, length: int) -> None:
        if isinstance(path, int):
            return posix.ftruncate(path, length)
        found = self._find(path, None, True)
        if found is None:
            return self._native(posix.truncate, path, length)  # type: ignore[no-any-return]
        place = self.overlay.place(found)
        if place is None:
            raise self.overlay.missing(found, path)
        if modes.S_ISDIR(posix.lstat(place).st_mode):
            raise error_of(errno.EISDIR, path)
        self._naming(path, posix.truncate, self.overlay.copy_up(found, path), length)

    # -- removing and moving

    def unlink(self, path: Any, *, dir_fd: int | None = None) -> None:
        found = self._find(path, dir_fd, False)
        if found is None:
            return self._native(posix.unlink, path, dir_fd=dir_fd)  # type: ignore[no-any-return]
        place = self.overlay.place(found)
        if place is None:
            raise self.overlay.missing(found, path)
        if modes.S_ISDIR(posix.lstat(place).st_mode):
            raise error_of(errno.EISDIR, path)
        self._remove(found, path, posix.unlink)

    def rmdir(self, path: Any, *, dir_fd: int | None = None) -> None:
        found = self._find(path, dir_fd, False)
        if found is None:
            return self._native(posix.rmdir, path, dir_fd=dir_fd)  # type: ignore[no-any-return]
        place = self.overlay.place(found)
        if place is None:
            raise self.overlay.missing(found, path)
        if not modes.S_ISDIR(posix.lstat(place).st_mode):
            raise error_of(errno.ENOTDIR, path)
        if self._has_entries(found, place):
            raise error_of(errno.ENOTEMPTY, path)
        self._remove(found, path, posix.rmdir)

    def _has_entries(self, found: str, place: str) -> bool:
        names = self.overlay.names(found)
        return bool(posix.listdir(place) if names is None else names)

    def _remove(self, found: str, said: Any, function: Callable[[str], None]) -> None:
        place = self.overlay.prepare_parent(found, said)
        if self.overlay.in_upper(found):
            self._naming(said, function, place)
        self.overlay.delete(found)
        posix.utime(os.path.dirname(place))

    def rename(self, src: Any, dst: Any, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None) -> None:
        overlay = self.overlay
        source, target = self._find(src, src_dir_fd, False), self._find(dst, dst_dir_fd, False)
        origin = overlay.place(source) if source is not None else overlay.absolute(src, src_dir_fd) or src
        goal = overlay.absolute(dst, dst_dir_fd) or dst
        if origin is None:
            error = overlay.missing(source or "/", src)
            error.filename2 = dst
            raise error
        if source is not None and source == target:
            return
        if target is not None:
            self._check_target(origin, target, src, dst)
        if source is not None:
            origin = self._whole_in_upper(source, src)
        if target is not None:
            goal = overlay.prepare_parent(target, dst)
        self._naming(src, posix.rename, origin, goal)
        if target is not None:
            overlay.delete(target)
            overlay.count(goal)
        if source is not None:
            overlay.delete(source)
            posix.utime(os.path.dirname(origin))
        overlay.changed_links()

    def _check_target(self, origin: str, target: str, src: Any, dst: Any) -> None:
        existing = self.overlay.place(target)
        if existing is None:
            return
        moves_folder = modes.S_ISDIR(posix.lstat(origin).st_mode)
        onto_folder = modes.S_ISDIR(posix.lstat(existing).st_mode)
        number = 0
        if moves_folder and not onto_folder:
            number = errno.ENOTDIR
        elif onto_folder and not moves_folder:
            number = errno.EISDIR
        elif onto_folder and self._has_entries(target, existing):
            number = errno.ENOTEMPTY
        if number:
            raise OSError(number, os.strerror(number), src, None, dst)

    def _whole_in_upper(self, found: str, said: Any) -> str:
        """Copy a file, or a folder with all that it holds, into scratch."""
        place = self.overlay.copy_up(found, said)
        if place is None or place == found:
            raise error_of(errno.EXDEV, said)
        if modes.S_ISDIR(posix.lstat(place).st_mode):
            for name in self.overlay.names(found) or ():
                self._whole_in_upper(f"{found}/{name}", said)
        return place

    # -- the working directory

    def chdir(self, path: Any) -> None:
        overlay = self.overlay
        if isinstance(path, int):
            posix.fchdir(path)
            real = posix.getcwd()
            shown = overlay.program_path(real)
            overlay.cwd_in_upper = shown if shown != real else None
            return
        found = None if overlay.untouched else self._find(path, None, True)
        if found is None:
            self._native(posix.chdir, path) if overlay.cwd_in_upper else posix.chdir(path)
            overlay.cwd_in_upper = None
            return
        place = overlay.place(found)
        if place is None:
            raise self.overlay.missing(found, path)
        if overlay.lower(found) is not None:
            place = found
        self._naming(path, posix.chdir, place)
        overlay.cwd_in_upper = found if place != found else None

    def fchdir(self, fd: int) -> None:
        self.chdir(fd)

    def getcwd(self) -> str:
        return self.overlay.cwd()

    def getcwdb(self) -> bytes:
        return os.fsencode(self.overlay.cwd())
