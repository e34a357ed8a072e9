"""What the program sees: paths resolved in the merged view, and which files are there.

Paths go through three forms: what the program said; the *canonical* path, absolute with its folders' links resolved in
the merged view; and the place of the file that is really opened, either in scratch (``upper``) or the canonical path
itself (``lower``). A whiteout hides a lower path and all below it for good; what is made there anew lies in scratch.
Everything goes through the ``posix`` module, which nobody patches.
"""

from __future__ import annotations

import errno
import os
import posix
import stat as modes
from typing import Any

from gonogo.virtual.sandbox.told import tell

_PASSED = ("/dev", "/proc", "/sys")
"""Not files of the user's: opened as they are."""
_LINKS_FOLLOWED = 40


class _Forks:
    """Whether another process writes to the same scratch: a parent, a child, or another rank's."""

    any = False


os.register_at_fork(before=lambda: setattr(_Forks, "any", True))


def shared_with_others() -> None:
    """Other processes write to the same scratch: the ranks that are rehearsed together, or one started afresh."""
    _Forks.any = True


class View:
    """The real files and those below ``scratch``, merged."""

    def __init__(self, scratch: str, passed: tuple[str, ...]) -> None:
        self.scratch = os.path.realpath(scratch)
        self.upper = self.scratch + "/files"
        self.temporary = self.scratch + "/tmp"
        self.passed = passed
        self._passed = (self.scratch, *(os.path.realpath(path) for path in passed), *_PASSED)
        self._passed_below = tuple(f"{path}/" for path in self._passed)
        self.log = self.scratch + "/deleted"
        for folder in (self.scratch, self.upper, self.temporary):
            os.makedirs(folder, exist_ok=True)
        posix.close(posix.open(self.log, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        self._written = bool(posix.listdir(self.upper))
        if not self._written:
            posix.utime(self.upper, ns=(0, 0))  # the first file below it changes that
        self._deleted: set[str] = set()
        self._folders_with_deletions: set[str] = set()
        self._log_read = 0
        self._folders: dict[str, str] = {}
        self.cwd_in_upper: str | None = None
        """The canonical working directory where it exists in scratch only, else None."""
        self.read_deletions()

    # -- paths

    def is_passed(self, path: str) -> bool:
        """Whether an absolute path is left to the real file system."""
        return path.startswith(self._passed_below) or path in self._passed

    @property
    def untouched(self) -> bool:
        """Whether nothing was written or deleted yet, by this process or one that it forked: all is as it really is.

        Asked some ten thousand times while a framework is imported.
        """
        if _Forks.any and not self._written:
            self._written = posix.stat(self.upper).st_mtime_ns != 0
        self.refresh()
        return not self._written and not self._deleted

    def refresh(self) -> None:
        """Learn of what was deleted by another process."""
        if _Forks.any:
            self.read_deletions()

    def read_deletions(self) -> None:
        """Learn of what was deleted."""
        size = posix.stat(self.log).st_size
        if size == self._log_read:
            return
        with open(posix.open(self.log, os.O_RDONLY | os.O_CLOEXEC), "rb") as log:
            log.seek(self._log_read)
            entries = log.read(size - self._log_read)
        self._log_read = size
        paths = [os.fsdecode(entry) for entry in entries.split(b"\0") if entry]
        self._deleted.update(paths)
        self._folders_with_deletions.update(os.path.dirname(path) for path in paths)
        self._folders.clear()

    def cwd(self) -> str:
        """The program's working directory."""
        return self.cwd_in_upper or posix.getcwd()

    def absolute(self, path: Any, dir_fd: int | None = None) -> str | None:
        """The path as an absolute string, or None where it is nothing to map (empty, or no path at all)."""
        try:
            text = os.fsdecode(path)
        except TypeError:
            return None
        if not text or "\0" in text:
            return None
        if text.startswith("/"):
            return text
        base = self.cwd() if dir_fd is None else self.path_of(dir_fd)
        return None if base is None else f"{base}/{text}"

    def path_of(self, fd: int) -> str | None:
        """The canonical path of an open file or folder; None for a pipe and the like."""
        try:
            place = posix.readlink(f"/proc/self/fd/{fd}")
        except OSError:
            return None
        if not place.startswith("/"):
            return None
        return self.program_path(place)

    def program_path(self, place: str) -> str:
        """The path that the program knows a place in scratch by."""
        if place == self.upper or place.startswith(self.upper + "/"):
            return place[len(self.upper) :] or "/"
        return place

    def canonical(self, path: str, follow: bool) -> str:
        """Absolute, without ``.``, ``..`` and links in its folders (nor a link at its end, if ``follow``)."""
        return self._resolve(path, follow, 0)

    def _resolve(self, path: str, follow: bool, depth: int) -> str:
        head, _, name = path.rstrip("/").rpartition("/")
        if name in ("", ".", ".."):
            return self._folder(path, depth)
        folder = self._folder(head or "/", depth)
        full = f"{folder if folder != '/' else ''}/{name}"
        if follow:
            link = self._link(full)
            if link is not None:
                return self._follow(folder, link, full, depth)
        return full

    def _folder(self, path: str, depth: int) -> str:
        known = self._folders.get(path)
        if known is not None:
            return known
        head, _, name = path.rstrip("/").rpartition("/")
        if not head and not name:
            return "/"
        parent = self._folder(head or "/", depth)
        if name in ("", "."):
            result = parent
        elif name == "..":
            result = os.path.dirname(parent)
        else:
            result = f"{parent if parent != '/' else ''}/{name}"
            link = self._link(result)
            if link is not None:
                return self._follow(parent, link, result, depth)
        self._folders[path] = result
        return result

    def _follow(self, folder: str, link: str, path: str, depth: int) -> str:
        if depth > _LINKS_FOLLOWED:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
        return self._resolve(link if link.startswith("/") else f"{folder}/{link}", True, depth + 1)

    def _link(self, path: str) -> str | None:
        if self.is_passed(path):
            return None
        for place in (self.upper + path, path):
            try:
                return posix.readlink(place)
            except OSError as error:
                if error.errno == errno.EINVAL:
                    return None
            if not self.lower_shows(path):
                return None
        return None

    # -- what exists

    def in_upper(self, path: str) -> bool:
        """Whether a canonical path has a copy in scratch."""
        return lstat(self.upper + path) is not None

    def lower_shows(self, path: str) -> bool:
        """Whether no whiteout hides the real file at a canonical path."""
        if self._deleted:
            while path != "/":
                if path in self._deleted:
                    return False
                path = os.path.dirname(path)
        return True

    def place(self, path: str) -> str | None:
        """Where the file at a canonical path really lies, or None where there is none."""
        if self.is_passed(path):
            return path
        if self.in_upper(path):
            return self.upper + path
        if not self.lower_shows(path):
            return None
        tell(path)
        try:
            posix.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError:
            pass  # there is something that may not be seen: let the real call say so
        return path

    def missing(self, path: str, said: Any) -> OSError:
        """The error for a canonical path that isn't there: ENOTDIR where a file stands in its way."""
        parent = os.path.dirname(path)
        while parent != "/":
            place = self.place(parent)
            if place is not None:
                number = errno.ENOENT if modes.S_ISDIR(posix.lstat(place).st_mode) else errno.ENOTDIR
                return OSError(number, os.strerror(number), said)
            parent = os.path.dirname(parent)
        return OSError(errno.ENOENT, os.strerror(errno.ENOENT), said)

    def lower(self, path: str) -> os.stat_result | None:
        """``lstat`` of the real file at a canonical path, None where it is hidden or absent."""
        if not self.lower_shows(path):
            return None
        tell(path)
        return lstat(path)

    def names(self, path: str, asked: str = "") -> list[str] | None:
        """Names in a folder at a canonical path; None where the real folder says it all.

        ``asked`` comes after the real folder's path: what it is listed for.
        """
        upper = listdir(self.upper + path)
        shows = self.lower_shows(path)
        lower = listdir(path + asked) if shows else []
        if upper is None and shows and path not in self._folders_with_deletions:
            return None
        prefix = "" if path == "/" else path
        names = dict.fromkeys(n for n in lower or () if f"{prefix}/{n}" not in self._deleted)
        names.update(dict.fromkeys(upper or ()))
        return list(names)


def lstat(path: str) -> os.stat_result | None:
    """``os.lstat``, or None where there is nothing."""
    try:
        return posix.lstat(path)
    except OSError:
        return None


def listdir(path: str) -> list[str] | None:
    """``os.listdir``, or None where there is no such folder."""
    try:
        return posix.listdir(path)
    except OSError:
        return None
