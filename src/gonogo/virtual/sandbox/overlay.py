"""A folder laid over the file system: writes land in scratch, reads see both, deletions are remembered.

How paths and whiteouts work is said in ``overlay_view.py``.
"""

from __future__ import annotations

import errno
import os
import posix
import stat as modes
import time
from typing import Any

from gonogo.finding import Text
from gonogo.finding.errors import UserError
from gonogo.virtual.sandbox.overlay_view import View, lstat

_METADATA_COPY_LIMIT = 64 << 20
"""A larger file isn't copied just to change its mode or times; the change is dropped."""
_LEAST_FREE = 32 << 20
_CHECK_EVERY = 0.2

SCRATCH_FULL = Text(
    "the scratch folder {path} is full: the rehearsal keeps there what the program writes. Free some space, or point "
    "TMPDIR to a larger disk",
    "临时目录 {path} 已满：排练把程序写出的文件存放在那里。请清理空间，或用 TMPDIR 指向更大的磁盘",
)
SCRATCH_LIMIT = Text(
    "the program wrote more than {limit} of real data, which the rehearsal keeps in {path}; have it write less (a "
    "smaller data set), or raise the limit",
    "程序写出的真实数据超过 {limit}（排练存放于 {path}）；请让它少写一些（例如更小的数据集），或提高上限",
)


class ScratchFull(UserError, OSError):
    """The scratch folder has no room for what the program writes."""

    def __init__(self, text: Text) -> None:
        UserError.__init__(self, text)
        self.errno = errno.ENOSPC


class Overlay(View):
    """The merged view of the real files and those written below ``scratch``."""

    def __init__(self, scratch: str, *, limit_bytes: int = 16 << 30, passed: tuple[str, ...] = ()) -> None:
        super().__init__(scratch, passed)
        self.limit_bytes = limit_bytes
        self._opened: dict[str, int] = {}
        self._checked = 0.0

    # -- writing

    def delete(self, path: str) -> None:
        """Hide the real file at a canonical path, and all below it."""
        if path not in self._deleted and self.lower(path) is not None:
            fd = posix.open(self.log, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
            try:
                posix.write(fd, os.fsencode(path) + b"\0")
            finally:
                posix.close(fd)
            self.read_deletions()
        self._folders.clear()

    def changed_links(self) -> None:
        """Forget what folders resolve to: a link or folder was made, moved or removed."""
        self._folders.clear()

    def prepare_parent(self, path: str, said: Any) -> str:
        """Make the folder of a canonical path in scratch; returns the path's place there.

        Raises FileNotFoundError or NotADirectoryError, naming ``said``, where the merged view has no such folder.
        """
        self._check_room()
        self._written = True
        parent = os.path.dirname(path)
        self._folder_in_upper(parent, said)
        return self.upper + path

    def _folder_in_upper(self, folder: str, said: Any) -> None:
        state = lstat(self.upper + folder)
        if state is not None:
            if not modes.S_ISDIR(state.st_mode):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), said)
            return
        state = self.lower(folder)
        if state is None:
            raise self.missing(folder, said)
        if not modes.S_ISDIR(state.st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), said)
        self._folder_in_upper(os.path.dirname(folder), said)
        parent = lstat(self.upper + os.path.dirname(folder))
        self._ignoring_existing(posix.mkdir, self.upper + folder, 0o700)
        posix.chmod(self.upper + folder, modes.S_IMODE(state.st_mode) | 0o700)
        posix.utime(self.upper + folder, ns=(state.st_atime_ns, state.st_mtime_ns))
        self._keep_times(os.path.dirname(folder), parent)

    def _keep_times(self, folder: str, before: os.stat_result | None) -> None:
        """A copy of what lies in a folder is no change to the folder."""
        if before is not None and folder != "/":
            posix.utime(self.upper + folder, ns=(before.st_atime_ns, before.st_mtime_ns))

    @staticmethod
    def _ignoring_existing(make: Any, *args: Any) -> None:
        try:
            make(*args)
        except FileExistsError:
            if not modes.S_ISDIR(posix.stat(args[0]).st_mode):
                raise

    def copy_up(self, path: str, said: Any, *, only_metadata: bool = False) -> str | None:
        """Copy a real file, link or (empty) folder into scratch; returns its place there.

        With ``only_metadata``, None for a file too large to be copied for the sake of its mode or times.
        """
        place = self.upper + path
        if lstat(place) is not None:
            return place
        state = self.lower(path)
        if state is None:
            raise self.missing(path, said)
        if modes.S_ISDIR(state.st_mode):
            self.prepare_parent(path, said)
            self._folder_in_upper(path, said)
            return place
        if only_metadata and state.st_size > _METADATA_COPY_LIMIT:
            return None
        parent = posix.stat(os.path.dirname(self.prepare_parent(path, said)))
        if modes.S_ISLNK(state.st_mode):
            posix.symlink(posix.readlink(path), place)
        elif modes.S_ISREG(state.st_mode):
            partial = f"{self.temporary}/.copy-{posix.getpid()}-{time.monotonic_ns()}"
            self._copy(path, partial, state)
            posix.rename(partial, place)
        else:
            return path
        posix.utime(place, ns=(state.st_atime_ns, state.st_mtime_ns), follow_symlinks=False)
        self._keep_times(os.path.dirname(path), parent)
        self.count(place)
        return place

    def _copy(self, source: str, target: str, state: os.stat_result) -> None:
        room = posix.statvfs(self.scratch)
        if state.st_blocks * 512 > room.f_bavail * room.f_frsize - _LEAST_FREE:
            raise ScratchFull(SCRATCH_FULL.format(path=self.scratch))
        reading = posix.open(source, os.O_RDONLY | os.O_CLOEXEC)
        try:
            writing = posix.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                left = state.st_size
                while left > 0:
                    sent = posix.sendfile(writing, reading, None, min(left, 1 << 30))
                    if sent == 0:
                        break
                    left -= sent
                posix.fchmod(writing, modes.S_IMODE(state.st_mode) | 0o600)
            finally:
                posix.close(writing)
        finally:
            posix.close(reading)

    def count(self, place: str) -> None:
        """Have a file in scratch count toward the limit."""
        self._opened[place] = 0

    def _check_room(self) -> None:
        now = time.monotonic()
        if now - self._checked < _CHECK_EVERY:
            return
        self._checked = now
        room = posix.statvfs(self.scratch)
        if room.f_bavail * room.f_frsize < _LEAST_FREE:
            raise ScratchFull(SCRATCH_FULL.format(path=self.scratch))
        for place in self._opened:
            state = lstat(place)
            self._opened[place] = state.st_blocks * 512 if state is not None else 0
        if sum(self._opened.values()) > self.limit_bytes:
            limit = f"{self.limit_bytes / (1 << 30):.1f} GiB"
            raise ScratchFull(SCRATCH_LIMIT.format(limit=limit, path=self.scratch))

    def explain(self, error: BaseException) -> Text | None:
        """Why a program's error is the scratch folder's fault, if it is: a full disk met while writing."""
        if isinstance(error, ScratchFull):
            return error.text
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            return SCRATCH_FULL.format(path=self.scratch)
        return None

    def written(self) -> list[str]:
        """The files that lie in scratch, by the paths that the program knows them by, sorted."""
        found = []
        pending = [self.upper]
        while pending:
            folder = pending.pop()
            with posix.scandir(folder) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(entry.path)
                    else:
                        found.append(self.program_path(entry.path))
        return sorted(found)

    def real(self, path: str | os.PathLike[str], *, write: bool = False) -> str:
        """The place of a file for a reader or writer that Python doesn't see; for a writer, in scratch (copied up)."""
        absolute = self.absolute(path)
        if absolute is None:
            return os.fspath(path)
        if not write and self.untouched:
            return os.fspath(path)
        found = self.canonical(absolute, True)
        if self.is_passed(found):
            return found
        if not write:
            return self.place(found) or os.fspath(path)
        if self.in_upper(found) or self.lower(found) is not None:
            return self.copy_up(found, path) or found
        place = self.prepare_parent(found, path)
        self.count(place)
        return place
