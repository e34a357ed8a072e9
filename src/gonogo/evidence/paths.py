"""File system access for paths from users: any string is handled, however malformed.

``pathlib`` raises for names that are too long, for folders that may not be entered and for circular links; a null
byte or a lone surrogate is a ValueError. Here, what can't exist doesn't exist, and what can't be opened raises
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
"""Environment variable that restricts reading to these folders, separated as in PATH; if unset, all are allowed."""


_MAX_FOLDERS_ABOVE = 5
"""How many levels above a folder outside any repository its project's root may be."""
EDITOR_BUFFERS: dict[str, bytes] = {}
"""Unsaved contents of files that are open in an editor, by resolved path: read instead of the file."""


def is_file(path: str | Path) -> bool:
    """Whether an accessible file exists there."""
    return os.path.isfile(path)


def is_folder(path: str | Path) -> bool:
    """Whether an accessible folder exists there."""
    return os.path.isdir(path)


def exists(path: str | Path) -> bool:
    """Whether anything accessible exists there."""
    return os.path.exists(path)


def may_exist(path: str | Path) -> bool:
    """Whether anything exists there, or may exist there in a folder that can't be accessed."""
    try:
        os.stat(path)
    except ValueError:
        return False
    except OSError as error:
        return error.errno not in _NOTHING_THERE
    return True


def resolve_path(path: str | Path) -> Path:
    """The path with links resolved; merely made absolute if that fails."""
    try:
        return Path(os.path.realpath(path))
    except (OSError, ValueError):
        return Path(os.path.abspath(path))


def expand_user(path: str | Path) -> Path:
    """The path with ``~`` expanded, if the user exists."""
    return Path(os.path.expanduser(path))


def iter_parent_folders(start: str | Path, *, outside: bool = False) -> Iterator[Path]:
    """A folder and its parents, up to its repository's root, and never above the user's home.

    Outside any repository it is only that folder, or with ``outside`` also the few above it, since a project may have
    been unpacked without its repository. gonogo's own checkout isn't the project of the examples within it.
    """
    start = Path(os.path.abspath(start))
    above = [start, *start.parents]
    home, own = Path.home(), clone_of_gonogo()
    last = next(
        (number for number, place in enumerate(above) if exists(place / ".git")), _MAX_FOLDERS_ABOVE if outside else 0
    )
    for place in above[: last + 1]:
        # Above the folders in ``ALLOWED_FOLDERS_VARIABLE``, or at the root of gonogo's own checkout.
        if place != start and (not is_read_allowed(place) or place == own):
            return
        yield place
        if place == home:
            return


def open_for_reading(path: str | Path) -> BinaryIO:
    """The file, open for reading bytes. Raises OSError for any path that can't be opened.

    Named pipes are rejected, since opening one blocks until there is a writer, but a shell's (``<(…)``) are accepted.
    """
    if EDITOR_BUFFERS and (held := EDITOR_BUFFERS.get(str(resolve_path(path)))) is not None:
        return io.BytesIO(held)
    try:
        if not is_read_allowed(path):
            raise OSError(errno.EACCES, "it is outside of the folders that were allowed", str(path))
        if stat.S_ISFIFO(os.stat(path).st_mode) and not str(path).startswith(_SPECIAL_FOLDERS):
            raise OSError(errno.EINVAL, "it is a pipe", str(path))
        return open(path, "rb")
    except ValueError as error:  # a null byte, a lone surrogate
        raise OSError(errno.EINVAL, str(error), str(path)) from None


def is_read_allowed(path: str | Path) -> bool:
    """Whether the file at the path may be read, in case only some folders are allowed."""
    only = os.environ.get(ALLOWED_FOLDERS_VARIABLE)
    return not only or _is_in_allowed_folder(path, only)


def _is_in_allowed_folder(path: str | Path, folders: str) -> bool:
    """Whether a file is below one of these folders, in Python's installation or in the Hub's cache."""
    hub = (
        os.environ.get("HF_HUB_CACHE")
        or f"{os.environ.get('HF_HOME') or expand_user(Path('~/.cache/huggingface'))}/hub"
    )
    allowed = [resolve_path(folder) for folder in (*folders.split(os.pathsep), sys.prefix, sys.base_prefix, hub)]
    whole = resolve_path(path)
    return any(whole.is_relative_to(folder) for folder in allowed)


def read_bytes(path: str | Path) -> bytes:
    """All bytes of the file. Raises OSError for any path that can't be read."""
    with open_for_reading(path) as file:
        return file.read()
