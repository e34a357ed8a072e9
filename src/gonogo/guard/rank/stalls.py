"""When a rank stands still: much longer than its steps take, with no sign of progress."""

from __future__ import annotations

import msgspec

_TIMES_MEDIAN = 10
_LOADING = 5
"""Before the first step, data is prepared and weights are read: it may well be quiet for longer."""


class StallNotice(msgspec.Struct, frozen=True):
    """A stall, for how long so far, and how often it was told before; or, where it is ``over``, how long it took."""

    seconds: float
    again: int = 0
    over: bool = False


class StallWatch:
    """Says when a rank stalls: once at the limit, then at intervals that double; and when it goes on."""

    def __init__(self, least: float) -> None:
        self._least = least
        self._since: float | None = None
        self._reported = 0
        self._next = 0.0

    def look(self, now: float, progress: float, median: float, loading: bool) -> StallNotice | None:
        """What is to be told now. ``progress``: when there was the last sign of it, on the clock of ``now``."""
        if self._since is not None and progress > self._since:
            before, self._since = self._since, None
            return StallNotice(progress - before, over=True)
        limit = max(self._least, _TIMES_MEDIAN * median) * (_LOADING if loading else 1)
        quiet = now - progress
        if self._since is None:
            if quiet < limit:
                return None
            self._since, self._reported, self._next = progress, 0, limit
        if quiet < self._next:
            return None
        self._next = quiet * 2
        self._reported += 1
        return StallNotice(quiet, self._reported - 1)
