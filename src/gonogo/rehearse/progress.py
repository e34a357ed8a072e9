"""Progress of a rehearsal, for the live display or a caller's own function."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from gonogo.evidence.rehearsal.record import RankRecord
from gonogo.finding import Text, translated
from gonogo.virtual.protocol.plan import Progress


@dataclass(frozen=True)
class RankStatus:
    """One rank: ``waiting``, ``running``, or the outcome of its record."""

    rank: int
    state: str
    progress: Progress | None = None
    failure: str = ""
    """The exception and its location; known before the end if the rank is run a second time."""


@dataclass(frozen=True)
class RehearsalStatus:
    """The state of the whole rehearsal; ``activity`` is what happens before, between and after the ranks."""

    activity: Text
    seconds: float
    ranks: tuple[RankStatus, ...] = ()
    steps: int = 0
    """The optimizer steps of each rank; 0 if not specified."""


def ended_status(record: RankRecord) -> RankStatus:
    """The status of a rank that has a record."""
    failure = record.failure
    return RankStatus(record.rank, record.outcome, None, failure.one_line_summary() if failure is not None else "")


OnProgress = Callable[[RehearsalStatus], None]


class ProgressReporter:
    """Passes progress, with the elapsed time, to a callback."""

    def __init__(self, on_progress: OnProgress | None, start_time: float, steps: int = 0) -> None:
        self._on_progress = on_progress
        self._started = start_time
        self._steps = steps

    def __call__(self, activity: Text, ranks: tuple[RankStatus, ...] = ()) -> None:
        """Report the current activity."""
        if self._on_progress is not None:
            self._on_progress(RehearsalStatus(activity, time.monotonic() - self._started, ranks, self._steps))

    def report_ranks(self, ranks: tuple[RankStatus, ...]) -> None:
        """Report the state of the ranks that are being run."""
        self(translated("rehearsing"), ranks)
