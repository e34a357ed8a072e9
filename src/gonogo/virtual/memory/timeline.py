"""Memory over a program's life in a few hundred points, none of which misses a peak.

A run with millions of allocations has to be reduced to something that can be plotted, without losing a peak. So the
run is divided into intervals with equal numbers of allocations, each represented by the moment with the most memory.
When there are too many intervals, adjacent ones are merged, keeping the higher moment.
"""

from __future__ import annotations

from typing import NamedTuple

from gonogo.evidence.rehearsal.record import CATEGORIES, MemoryTimeline, Phase

_MAX_POINTS = 512
"""Maximum number of points; merging adjacent intervals halves it."""


class Moment(NamedTuple):
    """The moment of an interval at which the most memory was in use."""

    live: int
    by_category: tuple[int, ...]
    reserved: int
    phase: Phase
    step: int
    category: int
    """Category of the allocation that reached it."""
    module: str | None
    operator: str = ""
    place: str = ""
    """``FILE:LINE FUNCTION`` of the innermost frame that is not torch's."""


class Timeline:
    """Memory over time on one device, in intervals of ``width`` allocations."""

    def __init__(self) -> None:
        self.width = 1
        self._moments: list[Moment] = []

    def add(self, moment: Moment) -> None:
        """Add the moment of an interval that has ended."""
        self._moments.append(moment)
        if len(self._moments) < _MAX_POINTS:
            return
        pairs = zip(self._moments[::2], self._moments[1::2], strict=True)
        self._moments = [max(pair, key=lambda one: one.live) for pair in pairs]
        self.width *= 2

    def as_record(self, device: str, last: Moment) -> MemoryTimeline:
        """The timeline as a record, including the unfinished interval."""
        moments = [*self._moments, last]
        return MemoryTimeline(
            device=device,
            allocations=self.width,
            by_category={
                name: tuple(moment.by_category[index] for moment in moments)
                for index, name in enumerate(CATEGORIES)
                if any(moment.by_category[index] for moment in moments)
            },
            reserved=tuple(moment.reserved for moment in moments),
            phases=tuple(moment.phase for moment in moments),
            steps=tuple(moment.step for moment in moments),
            reached_by=tuple(CATEGORIES[moment.category] for moment in moments),
            modules=tuple(moment.module or "" for moment in moments),
            operators=tuple(moment.operator for moment in moments),
            places=tuple(moment.place for moment in moments),
        )
