"""The temporary folder of a rehearsal."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from gonogo.confinement.trees import remove_tree
from gonogo.finding import UserError, translated

_MIN_FREE = 32 << 20


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """A new folder below TMPDIR, which is removed even if SIGTERM or SIGHUP ends the process.

    Raises UserError if it can't be created or has too little space.
    """
    parent = os.environ.get("TMPDIR") or tempfile.gettempdir()
    try:
        folder = Path(tempfile.mkdtemp(prefix="gonogo-", dir=parent)).resolve()
    except OSError as error:
        raise UserError(
            translated("can't use the temporary folder {path} ({why}): point TMPDIR to a writable folder").format(
                path=parent, why=error.strerror or error
            )
        ) from None
    with _signals_as_system_exit():
        try:
            free = shutil.disk_usage(folder).free
            if free < _MIN_FREE:
                raise _disk_full_error(parent, free)
            yield folder
        finally:
            remove_tree(folder)


@contextlib.contextmanager
def _signals_as_system_exit() -> Iterator[None]:
    """Within the block, SIGTERM and SIGHUP raise SystemExit, so that cleanup runs."""
    numbers = [
        number
        for name in ("SIGTERM", "SIGHUP")
        if (number := getattr(signal, name, None)) is not None and signal.getsignal(number) is signal.SIG_DFL
    ]
    if threading.current_thread() is not threading.main_thread():
        numbers = []  # only the main thread can handle signals

    def exit_on_signal(number: int, frame: FrameType | None) -> None:
        for one in numbers:
            signal.signal(one, signal.SIG_IGN)
        raise SystemExit(128 + number)

    for number in numbers:
        signal.signal(number, exit_on_signal)
    try:
        yield
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)


@contextlib.contextmanager
def raise_if_disk_full(folder: Path) -> Iterator[None]:
    """Turn a full disk within the block into a UserError that names the temporary folder."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise _disk_full_error(str(folder.parent), shutil.disk_usage(folder).free) from None


def _disk_full_error(path: str, free_bytes: int) -> UserError:
    return UserError(
        translated(
            "the temporary folder {path} is full ({free:.1f} MiB free, a rehearsal needs {least} MiB): free "
            "some space, or point TMPDIR to another disk"
        ).format(path=path, free=free_bytes / (1 << 20), least=_MIN_FREE >> 20)
    )
