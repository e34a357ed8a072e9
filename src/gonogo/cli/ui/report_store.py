"""Earlier reports, stored in the user's cache separately for each folder."""

from __future__ import annotations

import contextlib
import hashlib
import re
from pathlib import Path

import msgspec

from gonogo.prepare.user_cache import CacheFolder

_MAX_REPORTS = 50
_VERDICTS = {0: "GO", 1: "NO-GO", 3: "CANNOT-TELL"}


class StoredReport(msgspec.Struct, frozen=True):
    """A stored report: what was requested, its start (seconds since the epoch), its duration, and its exit status."""

    id: str
    tool: str
    folder: str
    what: str
    begun: float
    seconds: float
    status: int
    said: str = ""
    """A comparison's result; other commands' verdicts follow from the exit status."""

    @property
    def verdict(self) -> str:
        """The report's own verdict."""
        return self.said or _VERDICTS.get(self.status, "")


def has_report(status: int | None) -> bool:
    """Whether a command with this exit status has written a report."""
    return status in _VERDICTS


class ReportStore:
    """The stored reports of one folder, the newest first; the cache evicts old ones."""

    def __init__(self, root: Path) -> None:
        self._store = CacheFolder("ui")
        self._of = hashlib.sha256(str(root).encode("utf-8", "surrogateescape")).hexdigest()[:16]

    def all(self) -> list[StoredReport]:
        """The stored reports, without their pages."""
        found = []
        for name in self._store.names(f"{self._of}-about-")[:_MAX_REPORTS]:
            with contextlib.suppress(msgspec.MsgspecError, UnicodeError):  # written by another release of gonogo
                found.append(msgspec.json.decode(self._store.read(name, mark_used=False) or b"", type=StoredReport))
        return sorted(found, key=lambda made: -made.begun)

    def page(self, name: str) -> str | None:
        """A report's page, or None if there is no such report."""
        if not re.fullmatch(r"[0-9a-f]{12}", name):
            return None
        data = self._store.read(f"{self._of}-page-{name}")
        return None if data is None else data.decode("utf-8", "replace")

    def store_report(self, stored_report: StoredReport, page: str) -> None:
        """Store a report if possible; failure is ignored, since the report is also in memory."""
        with contextlib.suppress(OSError):
            self._store.write(f"{self._of}-page-{stored_report.id}", page.encode("utf-8", "replace"))
            self._store.write(f"{self._of}-about-{stored_report.id}", msgspec.json.encode(stored_report))
