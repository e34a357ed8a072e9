"""Files that a confined program may have written, read as a stranger's: no links followed, nothing that blocks."""

from __future__ import annotations

import ctypes
import os
import stat
from pathlib import Path

_LARGEST = 256 << 20
_OPENAT2 = 437
_RESOLVE_NO_SYMLINKS = 0x04
_AT_FDCWD = -100


def read_written(path: Path | str, most: int = _LARGEST, *, start: int = 0) -> bytes | None:
    """The contents of a regular file of ``most`` bytes at the most, from ``start`` on; None where there is none.

    Raises OSError for what can't be read, or is reached through a link.
    """
    try:
        descriptor = _opened(os.fspath(path))
    except FileNotFoundError:
        return None
    with open(descriptor, "rb") as file:
        state = os.fstat(descriptor)
        if not stat.S_ISREG(state.st_mode) or state.st_size > most:
            return None
        file.seek(start)
        return file.read(most)


def _opened(path: str) -> int:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    how = (ctypes.c_uint64 * 3)(flags, 0, _RESOLVE_NO_SYMLINKS)
    descriptor = ctypes.CDLL(None, use_errno=True).syscall(
        ctypes.c_long(_OPENAT2), ctypes.c_int(_AT_FDCWD), os.fsencode(path), ctypes.byref(how), ctypes.c_size_t(24)
    )
    if descriptor >= 0:
        return int(descriptor)
    number = ctypes.get_errno()
    if number == 38 or (number == 1 and os.access(path, os.R_OK)):  # kernels, or filters, that don't know the call
        return os.open(path, flags)
    raise OSError(number, os.strerror(number), path)
