"""While the command runs: prints a line and updates the report in the folder when ranks record trouble."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

_TROUBLE_MARKERS = (b'"kind":"stall"', b'"kind":"warning"', b'"kind":"nonfinite"', b'"differences":[{')
_SETTLE_SECONDS = 3.0
"""Seconds to wait for the other ranks' records of the same failure."""
_MAX_SILENCE_SECONDS = 3600.0
_MAX_READ_BYTES = 1 << 20


class TroubleWatch:
    """Polls the ranks' records; calls ``notify`` when they show trouble, less and less often.

    ``on_deleted`` is called once if the folder is gone.
    """

    def __init__(self, folder: Path, notify: Callable[[], None], on_deleted: Callable[[], None] = lambda: None) -> None:
        self._folder = folder
        self._tell = notify
        self._deleted: Callable[[], None] | None = on_deleted
        self._read: dict[str, int] = {}
        self._trouble_since: float | None = None
        self._quiet_until = 0.0
        self._quiet = 30.0

    def poll(self) -> None:
        """Poll once; never raises."""
        try:
            if self._deleted is not None and not self._folder.is_dir():
                deleted, self._deleted = self._deleted, None
                deleted()
            if self._deleted is not None:
                self._check_for_trouble()
        except Exception:  # this is optional: the final report says the same
            self._quiet_until = float("inf")

    def _check_for_trouble(self) -> None:
        now = time.monotonic()
        if self._has_new_trouble() and self._trouble_since is None:
            self._trouble_since = now
        since = self._trouble_since
        if since is not None and now - since >= _SETTLE_SECONDS and now >= self._quiet_until:
            self._trouble_since = None
            self._quiet_until = now + self._quiet
            self._quiet = min(2 * self._quiet, _MAX_SILENCE_SECONDS)
            self._tell()

    def _has_new_trouble(self) -> bool:
        trouble = False
        for path in self._folder.glob("rank-*.jsonl"):
            known = self._read.get(path.name, 0)
            size = path.stat().st_size
            if size <= known:
                continue
            with path.open("rb") as file:
                file.seek(max(known, size - _MAX_READ_BYTES))
                data = file.read(_MAX_READ_BYTES)
            self._read[path.name] = size
            trouble = trouble or any(word in data for word in _TROUBLE_MARKERS)
        return trouble
