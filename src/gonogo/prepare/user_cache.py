"""A folder of the cache: entries that are whole or not there, the least recently used gone where there are too many."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

from gonogo.evidence.environment.hardware import memory_size
from gonogo.report.atomic import write_atomically

SIZE_VARIABLE = "GONOGO_CACHE_SIZE"
_DEFAULT_SIZE = "1G"
_ABANDONED_AFTER_SECONDS = 24 * 3600.0


def cache_folder(name: str) -> Path:
    """``$XDG_CACHE_HOME/gonogo/NAME``, or the same below ``~/.cache``."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "gonogo" / name


def max_bytes() -> int:
    """How large such a folder may grow: ``GONOGO_CACHE_SIZE``; 0 keeps nothing. Raises UserError for no size."""
    text = os.environ.get(SIZE_VARIABLE) or _DEFAULT_SIZE
    return 0 if text.strip() == "0" else memory_size(text, SIZE_VARIABLE)


class Store:
    """Entries by name in one folder of the cache, shared by all processes of the user."""

    def __init__(self, name: str) -> None:
        self.folder = cache_folder(name)

    def read(self, name: str, *, mark_used: bool = True) -> bytes | None:
        """An entry, which counts as used now; None where there is none."""
        path = self.folder / name
        try:
            data = path.read_bytes()
        except OSError:
            return None
        if mark_used:
            with contextlib.suppress(OSError):
                os.utime(path)
        return data

    def names(self, prefix: str) -> list[str]:
        """The entries whose names begin so, the last used first."""
        found = [entry for entry in self._entries() if entry[2].startswith(prefix)]
        return [name for _, _, name in sorted(found, reverse=True)]

    def write(self, name: str, data: bytes) -> None:
        """Keep an entry, whoever else keeps the same; drop others for it. Raises OSError where it can't be written."""
        most = max_bytes()
        if len(data) > most:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        write_atomically(self.folder / name, data)
        entries = sorted(self._entries())
        size = sum(bytes_ for _, bytes_, _ in entries)
        for _, bytes_, other in entries:
            if size <= most:
                return
            if other != name:
                self.drop(other)
                size -= bytes_

    def drop(self, name: str) -> None:
        """Remove an entry, if it is there."""
        with contextlib.suppress(OSError):
            (self.folder / name).unlink()

    def _entries(self) -> list[tuple[int, int, str]]:
        """(last used, bytes, name) of each; what a process began to write long ago, and never ended, goes."""
        found = []
        with contextlib.suppress(OSError), os.scandir(self.folder) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):  # another process has just dropped it
                    state = entry.stat()
                    if not entry.name.startswith("."):
                        found.append((state.st_mtime_ns, state.st_size, entry.name))
                    elif time.time() - state.st_mtime > _ABANDONED_AFTER_SECONDS:
                        os.unlink(entry.path)
        return found
