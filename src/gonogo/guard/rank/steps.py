"""Measures the lengths of training steps, and batches short steps into one record."""

from __future__ import annotations

import statistics
import time
from collections import deque

import msgspec

from gonogo.evidence.guarded.records import RankMemoryRecord, StepRecord

_MEDIAN_WINDOW = 50
_MAX_UNREPORTED = 100_000


class StepLog:
    """The lengths of a rank's steps. Times are seconds of ``time.monotonic``."""

    def __init__(self, sample_seconds: float) -> None:
        self._every = sample_seconds
        self._ended: float | None = None
        self._lengths: deque[float] = deque(maxlen=_MEDIAN_WINDOW)
        self._unreported: deque[float] = deque(maxlen=_MAX_UNREPORTED)
        self._sampled = self._reported = 0.0
        self._sample: tuple[int, RankMemoryRecord] | None = None

    def begin(self, now: float) -> None:
        """Start the clock of the next step, leaving out the time before."""
        self._ended = now

    def end_step(self, now: float) -> None:
        """Record the end of a step, which starts the next one."""
        if self._ended is not None:
            self._lengths.append(now - self._ended)
            self._unreported.append(now - self._ended)
        self._ended = now

    def sample_due(self, now: float) -> bool:
        """Whether it is time for another memory sample; if so, counts it as taken."""
        if now - self._sampled < self._every:
            return False
        self._sampled = now
        return True

    def store_sample(self, step: int, memory_sample: RankMemoryRecord) -> None:
        """Store the memory sample taken after a step."""
        self._sample = (step, memory_sample)

    def median(self) -> float:
        """The median length of the last steps; 0 before there were three."""
        return statistics.median(tuple(self._lengths)) if len(self._lengths) >= 3 else 0.0

    def take_unreported_steps(
        self, step: int, now: float, *, include_all: bool = False
    ) -> tuple[StepRecord, int] | None:
        """A record of the steps up to ``step`` that are not reported yet, and the step of its memory sample.

        None if there are none, or if it is too early (unless ``include_all``: at the end).
        """
        if not self._unreported or not (include_all or self._sample is not None or now - self._reported >= self._every):
            return None
        self._reported = now
        lengths = [self._unreported.popleft() for _ in range(len(self._unreported))]
        (at, held), self._sample = self._sample or (step, RankMemoryRecord(0.0)), None
        record = StepRecord(
            **msgspec.structs.asdict(held) | {"time": time.time()},
            step=step,
            steps=len(lengths),
            seconds=round(sum(lengths) / len(lengths), 6),
            slowest=round(max(lengths), 6),
        )
        return record, at
