"""Memory over a program's life in some hundred points: between two of them the highest moment is kept, whole.

A run of millions of allocations has to leave something that can be drawn, and no peak may be lost on the way. So the
program's life is cut into stretches of equally many allocations; of each the moment with the most memory counts. When
there are too many stretches, neighbours become one, which keeps the higher of both.
"""

from __future__ import annotations

from typing import NamedTuple

from gonogo.evidence.rehearsal.record import CATEGORIES, MemoryTimeline, Phase

_MAX_POINTS = 512
"""The most that are kept; after joining neighbours there are half as many."""


class Moment(NamedTuple):
    """The highest moment of a stretch."""

    live: int
    by_category: tuple[int, ...]
    reserved: int
    phase: Phase
    step: int
    category: int
    """Of the allocation that reached it."""
    module: str | None
    operator: str = ""
    place: str = ""
    """``FILE:LINE FUNCTION`` of the innermost frame that is not torch's."""


class Timeline:
    """The stretches of one device. ``width`` allocations are one."""

    def __init__(self) -> None:
        self.width = 1
        self._moments: list[Moment] = []

    def add(self, moment: Moment) -> None:
        """The next stretch has ended."""
        self._moments.append(moment)
        if len(self._moments) < _MAX_POINTS:
            return
        pairs = zip(self._moments[::2], self._moments[1::2], strict=True)
        self._moments = [max(pair, key=lambda one: one.live) for pair in pairs]
        self.width *= 2

    def as_record(self, device: str, last: Moment) -> MemoryTimeline:
        """All of it, with the stretch that has not ended."""
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
