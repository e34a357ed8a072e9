"""What a worker prints, kept in a file of bounded size."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import IO

_MAX_BYTES = 48 << 20
_LAST = 1 << 16
_CUT = b"\n... [cut: the program printed more than fits here; its last lines follow] ...\n"


class CappedLogFile:
    """Copies a pipe to a file from a thread; past :data:`_MAX_BYTES` bytes only the last :data:`_LAST` are kept."""

    def __init__(self, pipe: IO[bytes], path: Path) -> None:
        self._pipe = pipe
        self._last = bytearray()
        self._written = 0
        self._cut = False
        self._file = open(path, "wb", buffering=0)  # noqa: SIM115 - closed by the thread
        self._thread = threading.Thread(target=self._copy, daemon=True, name=f"log {path.name}")
        self._thread.start()

    def _copy(self) -> None:
        with self._file as file:
            while block := os.read(self._pipe.fileno(), 1 << 16):
                self._last += block
                del self._last[:-_LAST]
                if self._written + len(block) > _MAX_BYTES:
                    self._cut = True
                    continue
                try:
                    file.write(block)
                    self._written += len(block)
                except OSError:  # the disk is full: the program must not stop for its log
                    self._cut = True
            if self._cut:
                try:
                    file.write(_CUT + self._last)
                except OSError:
                    return

    def close(self) -> None:
        """Wait for the pipe's end, which comes when every process that writes to it has ended."""
        self._thread.join(timeout=5.0)
        if not self._thread.is_alive():
            self._pipe.close()

    def tail(self, lines: int) -> list[str]:
        """The last lines that are not empty."""
        text = bytes(self._last).decode("utf-8", "replace")
        return [line for line in text.splitlines() if line.strip()][-lines:]
