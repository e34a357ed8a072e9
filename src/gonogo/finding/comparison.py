"""Two rehearsals held against each other: what changed, and whether it is worse, better or the same."""

from __future__ import annotations

from typing import Literal

import msgspec

from gonogo.finding.rehearsal import MemoryTimeline
from gonogo.finding.text import Text

_MAX_POINTS = 256
"""Of a curve in JSON: as many as a page is wide in half pixels."""
_MIB = 1 << 20


class MemoryCurve(msgspec.Struct, frozen=True):
    """A :class:`MemoryTimeline` as the JSON keeps it: fewer points, in MiB, without who allocated."""

    device: str
    allocations: int
    """Allocations that a point stands for; of these it is the moment with the most memory."""
    held_mib: dict[str, list[int]]
    """By category; what never held anything is left out."""
    reserved_mib: list[int]
    """What the caching allocator had taken; empty for the host."""
    phases: list[tuple[str, int, int, int]]
    """(phase, step, first point, last point), in the order of time."""


def curve_of(timeline: MemoryTimeline) -> MemoryCurve:
    """The curve: of the points that are put together, that with the most memory is kept whole."""
    totals = [sum(held) for held in zip(*timeline.by_category.values(), strict=True)]
    width = max(-(-len(totals) // _MAX_POINTS), 1)
    starts = range(0, len(totals), width)
    kept = [max(range(start, min(start + width, len(totals))), key=totals.__getitem__) for start in starts]
    return MemoryCurve(
        timeline.device,
        timeline.allocations * width,
        {name: [round(held[at] / _MIB) for at in kept] for name, held in timeline.by_category.items()},
        [round(timeline.reserved[at] / _MIB) for at in kept] if any(timeline.reserved) else [],
        phase_runs([(timeline.phases[at], timeline.steps[at]) for at in kept]),
    )


def phase_runs(points: list[tuple[str, int]]) -> list[tuple[str, int, int, int]]:
    """Points of one phase and step together: (phase, step, first point, last point)."""
    runs: list[tuple[str, int, int, int]] = []
    for number, (phase, step) in enumerate(points):
        if runs and runs[-1][:2] == (phase, step):
            runs[-1] = (phase, step, runs[-1][2], number)
        else:
            runs.append((phase, step, number, number))
    return runs


class Change(msgspec.Struct, frozen=True):
    """One row of before and after; ``judged`` where the verdict of the comparison rests on it."""

    what: Text
    before: Text
    after: Text
    change: Text = Text("", "")
    judged: Literal["", "better", "worse"] = ""
    is_headline: bool = False
    """Whether it is one of the few figures that stand at the top."""


class Difference(msgspec.Struct, frozen=True):
    """What only one of the two reports has."""

    kind: Literal["finding", "assumption", "covered", "skipped"]
    is_new: bool
    """Whether the later report has it; else it was in the earlier one, and is gone."""
    what: Text


class CurvePair(msgspec.Struct, frozen=True):
    """Memory of one device in both rehearsals."""

    rank: int
    before: MemoryCurve
    after: MemoryCurve
    capacity_bytes: int = 0
    """What the caching allocator may take of the device in the later rehearsal; 0 for the host."""


class Comparison(msgspec.Struct, frozen=True):
    """The comparison of two rehearsals; its reasons are sentences of what is worse, or better."""

    judged: Literal["same", "better", "regressed"]
    before: str
    """The file of the earlier report."""
    after: str
    """The file of the later one; empty for the rehearsal that was just made."""
    before_verdict: str
    after_verdict: str
    growth: float
    """Per cent that a memory peak may grow."""
    reasons: tuple[Text, ...]
    changes: tuple[Change, ...]
    differences: tuple[Difference, ...]
    peaks_judged: bool = True
    """Whether some rank completed in both, so that its peaks are those of the whole run."""
    curves: tuple[CurvePair, ...] = ()
    next_command: str = ""
    """What the later report says to do next."""
    next_does: str = ""
