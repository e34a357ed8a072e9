"""Paths as users write them, asked of the file system: whatever a name is, the answer is an answer.

``pathlib`` raises for a name that is too long, for a folder that may not be entered, for links that lead in a circle; a
zero byte or a lone surrogate is a ValueError. Here what can't be there isn't there, and what can't be opened is an
OSError.
"""

from __future__ import annotations

import errno
import io
import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from gonogo.finding.install import clone_of_gonogo

_NOTHING_THERE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP})
_SPECIAL_FOLDERS = ("/dev/", "/proc/")

ALLOWED_FOLDERS_VARIABLE = "GONOGO_ONLY_BELOW"
"""The variable that names the folders, as PATH does, below which files of a user's may be read; unset, all may."""


_MAX_FOLDERS_ABOVE = 5
"""How far above a folder in no repository its project's root may be."""
EDITOR_BUFFERS: dict[str, bytes] = {}
"""What editors hold of files that are not saved yet, by their paths without links: it is read instead of them."""


def is_file(path: str | Path) -> bool:
    """Whether a file lies there that can be looked at."""
    return os.path.isfile(path)


def is_folder(path: str | Path) -> bool:
    """Whether a folder lies there that can be looked at."""
    return os.path.isdir(path)


def exists(path: str | Path) -> bool:
    """Whether anything lies there that can be looked at."""
    return os.path.exists(path)


def may_exist(path: str | Path) -> bool:
    """Whether anything lies there, or may lie there, in a folder that may not be looked into."""
    try:
        os.stat(path)
    except ValueError:
        return False
    except OSError as error:
        return error.errno not in _NOTHING_THERE
    return True


def resolved(path: str | Path) -> Path:
    """The path without links, as far as it can be followed."""
    try:
        return Path(os.path.realpath(path))
    except (OSError, ValueError):
        return Path(os.path.abspath(path))


def expanded(path: str | Path) -> Path:
    """The path with ``~`` replaced, where that names a user."""
    return Path(os.path.expanduser(path))


def iter_parent_folders(start: str | Path, *, outside: bool = False) -> Iterator[Path]:
    """A folder and those above it, up to its repository's root, and none above the user's home.

    Of a folder in no repository it is that one alone, or with ``outside`` the few above it too: a project may have been
    unpacked without its repository. gonogo's own checkout is not the project of the examples that lie in it.
    """
    start = Path(os.path.abspath(start))
    above = [start, *start.parents]
    home, own = Path.home(), clone_of_gonogo()
    last = next(
        (number for number, place in enumerate(above) if exists(place / ".git")), _MAX_FOLDERS_ABOVE if outside else 0
    )
    for place in above[: last + 1]:
        # Above the folders that a client may name, or at gonogo's own root.
        if place != start and (not is_read_allowed(place) or place == own):
            return
        yield place
        if place == home:
            return


def opened(path: str | Path) -> BinaryIO:
    """The file, open for reading bytes. Raises OSError, for any name that can't be opened.

    A pipe that has a name waits for whoever writes it, perhaps for ever: it is refused. A shell's (``<(…)``) is not.
    """
    if EDITOR_BUFFERS and (held := EDITOR_BUFFERS.get(str(resolved(path)))) is not None:
        return io.BytesIO(held)
    try:
        if not is_read_allowed(path):
            raise OSError(errno.EACCES, "it is outside of the folders that were allowed", str(path))
        if stat.S_ISFIFO(os.stat(path).st_mode) and not str(path).startswith(_SPECIAL_FOLDERS):
            raise OSError(errno.EINVAL, "it is a pipe", str(path))
        return open(path, "rb")
    except ValueError as error:  # a zero byte, a lone surrogate
        raise OSError(errno.EINVAL, str(error), str(path)) from None


def is_read_allowed(path: str | Path) -> bool:
    """Whether the path is one whose file may be read, where only some folders are allowed."""
    only = os.environ.get(ALLOWED_FOLDERS_VARIABLE)
    return not only or _is_in_allowed_folder(path, only)


def _is_in_allowed_folder(path: str | Path, folders: str) -> bool:
    """Whether a file is below one of these folders, or is one of Python's own or of the hub's cache."""
    hub = os.environ.get("HF_HUB_CACHE") or f"{os.environ.get('HF_HOME') or expanded(Path('~/.cache/huggingface'))}/hub"
    allowed = [resolved(folder) for folder in (*folders.split(os.pathsep), sys.prefix, sys.base_prefix, hub)]
    whole = resolved(path)
    return any(whole.is_relative_to(folder) for folder in allowed)


def contents(path: str | Path) -> bytes:
    """All bytes of the file. Raises OSError, for any name that can't be read."""
    with opened(path) as file:
        return file.read()
