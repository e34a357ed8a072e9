"""What a rehearsal is doing, for whoever watches: the live display, or a caller's own function."""

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
    """The exception that it has ended in, and where; known before its end where it is run a second time."""


@dataclass(frozen=True)
class RehearsalStatus:
    """The rehearsal as a whole; ``activity`` says what is done before, between and after the ranks."""

    activity: Text
    seconds: float
    ranks: tuple[RankStatus, ...] = ()
    steps: int = 0
    """Optimizer steps that each rank is to make; 0 where that is not said."""


def ended_status(record: RankRecord) -> RankStatus:
    """The state of a rank whose record is there."""
    failure = record.failure
    return RankStatus(record.rank, record.outcome, None, failure.in_a_line() if failure is not None else "")


OnProgress = Callable[[RehearsalStatus], None]


class ProgressReporter:
    """Hands progress on, with the time, to whoever asked for it."""

    def __init__(self, on_progress: OnProgress | None, start_time: float, steps: int = 0) -> None:
        self._on_progress = on_progress
        self._started = start_time
        self._steps = steps

    def __call__(self, activity: Text, ranks: tuple[RankStatus, ...] = ()) -> None:
        """Say what is being done now."""
        if self._on_progress is not None:
            self._on_progress(RehearsalStatus(activity, time.monotonic() - self._started, ranks, self._steps))

    def ranks(self, ranks: tuple[RankStatus, ...]) -> None:
        """Say how the ranks that are run are getting on."""
        self(translated("rehearsing"), ranks)
