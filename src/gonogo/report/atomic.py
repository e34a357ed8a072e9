"""Atomic file writes: a file is either the old one or the complete new one, even if writing is interrupted."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def write_atomically(path: Path, data: bytes, mode: int | None = None) -> None:
    """Replace the file at ``path`` by ``data``; if ``path`` is a symbolic link, the link itself is replaced.

    ``mode``: the permissions; by default those of a new file. Raises OSError; the old file is kept in that case.
    """
    import tempfile  # imported here because most commands write nothing

    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_current_umask() if mode is None else mode)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def _current_umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
