"""Files that a confined program may have written, read as a stranger's: no links followed, nothing that blocks."""

from __future__ import annotations

import os
import stat
from pathlib import Path

_LARGEST = 256 << 20


def read_written(path: Path | str, most: int = _LARGEST) -> bytes | None:
    """The contents of a regular file of ``most`` bytes at the most; None where there is none.

    Raises OSError for what can't be read.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    with open(descriptor, "rb") as file:
        state = os.fstat(descriptor)
        if not stat.S_ISREG(state.st_mode) or state.st_size > most:
            return None
        return file.read(most)
