"""Access to files that a confined program may have written or replaced, without following links and without blocking.

In a folder that programs can write to, any file of gonogo's may have been replaced by a link to a user's file, or by
a pipe without a writer. Paths here are absolute, and the part made by gonogo contains no links.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

Decoded = TypeVar("Decoded")

_MAX_BYTES = 256 << 20
_UNREADABLE_ERRNOS = {
    errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EACCES, errno.EPERM, errno.EISDIR, errno.ENXIO, errno.ENAMETOOLONG,
}  # fmt: skip


def read_untrusted(path: Path | str, most: int = _MAX_BYTES, *, start: int = 0) -> bytes | None:
    """The contents of a regular file of at most ``most`` bytes, from ``start`` on; None if it can't be read.

    Raises OSError for a failure that is not the file's.
    """
    try:
        with _open_parent_folder(path) as (folder, name):
            descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except OSError as error:
        if error.errno in _UNREADABLE_ERRNOS:
            return None
        raise
    with open(descriptor, "rb") as file:
        state = os.fstat(descriptor)
        if not stat.S_ISREG(state.st_mode) or state.st_size > most:
            return None
        file.seek(start)
        return file.read(most)


def decode_untrusted(content: bytes | None, kind: type[Decoded]) -> Decoded:
    """Decode untrusted JSON as ``kind``. Raises ValueError for anything else, and for missing content."""
    try:
        return msgspec.json.decode(content or b"", type=kind)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(str(error)) from None


def write_shared(path: Path | str, contents: bytes, mode: int = 0o644) -> None:
    """Write a file into a folder that programs also write to, replacing whatever is there. Raises OSError."""
    with _open_parent_folder(path) as (folder, name):
        new = f".{name[:100]}-{secrets.token_hex(8)}"
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode, dir_fd=folder)
        try:
            with open(descriptor, "wb") as file:
                file.write(contents)
            os.rename(new, name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(new, dir_fd=folder)
            raise


@contextlib.contextmanager
def _open_parent_folder(path: Path | str) -> Iterator[tuple[int, str]]:
    """A descriptor of the folder that contains a file, opened without following links, and the file's name."""
    if not os.path.isabs(path):
        raise ValueError(f"{path} is not absolute")
    *folders, name = [part for part in os.fspath(path).split("/") if part not in ("", ".")]
    flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open("/", flags)
    try:
        for part in folders:
            below = os.open(part, flags, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = below
        yield descriptor, name
    finally:
        os.close(descriptor)
