"""A cache folder with atomic writes, in which the least recently used entries are evicted if it grows too large."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

from gonogo.evidence.environment.hardware import parse_memory_size
from gonogo.report.atomic import write_atomically

SIZE_VARIABLE = "GONOGO_CACHE_SIZE"
_DEFAULT_SIZE = "1G"
_ABANDONED_AFTER_SECONDS = 24 * 3600.0


def cache_folder(name: str) -> Path:
    """``$XDG_CACHE_HOME/gonogo/NAME``, or ``~/.cache/gonogo/NAME``."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "gonogo" / name


def max_bytes() -> int:
    """The size limit of such a folder, from ``GONOGO_CACHE_SIZE``; 0 disables it. Raises UserError if invalid."""
    text = os.environ.get(SIZE_VARIABLE) or _DEFAULT_SIZE
    return 0 if text.strip() == "0" else parse_memory_size(text, SIZE_VARIABLE)


class CacheFolder:
    """Named entries in one cache folder, shared by all processes of the user."""

    def __init__(self, name: str) -> None:
        self.folder = cache_folder(name)

    def read(self, name: str, *, mark_used: bool = True) -> bytes | None:
        """The content of an entry, which is marked as just used; None if there is none."""
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
        """The entries with this prefix, most recently used first."""
        found = [entry for entry in self._entries() if entry[2].startswith(prefix)]
        return [name for _, _, name in sorted(found, reverse=True)]

    def write(self, name: str, data: bytes) -> None:
        """Store an entry, safe against concurrent writers; evict older ones. Raises OSError if it can't be saved."""
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
        """Remove an entry if it exists."""
        with contextlib.suppress(OSError):
            (self.folder / name).unlink()

    def _entries(self) -> list[tuple[int, int, str]]:
        """(last used, size in bytes, name) of each entry; removes temporary files that were abandoned long ago."""
        found = []
        with contextlib.suppress(OSError), os.scandir(self.folder) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):  # another process may have removed it
                    state = entry.stat()
                    if not entry.name.startswith("."):
                        found.append((state.st_mtime_ns, state.st_size, entry.name))
                    elif time.time() - state.st_mtime > _ABANDONED_AFTER_SECONDS:
                        os.unlink(entry.path)
        return found
