"""What a rehearsal is doing, for whoever watches: the live display, or a caller's own function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gonogo.finding import Text
from gonogo.virtual.plan import Progress


@dataclass(frozen=True)
class RankStatus:
    """One rank: ``waiting``, ``running``, or the outcome of its record."""

    rank: int
    state: str
    progress: Progress | None = None


@dataclass(frozen=True)
class Status:
    """The rehearsal as a whole; ``activity`` says what is done before, between and after the ranks."""

    activity: Text
    seconds: float
    ranks: tuple[RankStatus, ...] = ()


OnProgress = Callable[[Status], None]
