"""The memory curves of two rehearsals, overlaid and aligned by phase, since neither has a clock."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import SequenceMatcher
from typing import Any

from gonogo.finding import translated
from gonogo.finding.rehearsal import CurvePair, MemoryCurve, RehearsalComparison
from gonogo.report.html.over_time import over_time_section
from gonogo.report.untrusted import clean_line

_TITLE = translated("Memory of both rehearsals over time")
_DEVICE = translated("Device")
_REMARK = translated(
    "Each phase of one rehearsal is overlaid on the same phase of the other, so that they can be "
    "compared even though they make different numbers of allocations. Drag to zoom, double-click to "
    "reset; keyboard: arrows, + and -, 0."
)


def curve_sections(comparison: RehearsalComparison, language: str) -> Iterator[str]:
    """The section, if both reports have curves."""
    if comparison.curves:
        options = (
            (str(number), f"rank {pair.rank}, {pair.after.device}") for number, pair in enumerate(comparison.curves)
        )
        yield over_time_section(_TITLE, _DEVICE, options, _REMARK, language, kind="compared")


def curve_data(comparison: RehearsalComparison) -> dict[str, Any]:
    """The data for the page's script."""
    return {
        "before": clean_line(comparison.before),
        "after": clean_line(comparison.after),
        "pairs": [_pair_data(pair) for pair in comparison.curves],
    }


def _pair_data(pair: CurvePair) -> dict[str, Any]:
    phases: list[tuple[str, int, int, int]] = []
    points: dict[str, list[int | None]] = {"before": [], "after": []}
    for (phase, step), before, after in _align_phases(pair.before, pair.after):
        wide = max(_point_count(before), _point_count(after))
        phases.append((phase, step, len(points["before"]), len(points["before"]) + wide - 1))
        points["before"] += _stretch_points(before, wide)
        points["after"] += _stretch_points(after, wide)
    return {
        "rank": pair.rank,
        "device": clean_line(pair.after.device),
        "capacity": pair.capacity_bytes,
        "phases": phases,
        "before": _select_points(pair.before, points["before"]),
        "after": _select_points(pair.after, points["after"]),
    }


_PointRange = tuple[int, int] | None


def _align_phases(
    before: MemoryCurve, after: MemoryCurve
) -> Iterator[tuple[tuple[str, int], _PointRange, _PointRange]]:
    """((phase, step), points before, points after) in chronological order; None if one run lacks the phase."""
    old, new = ([(phase, step) for phase, step, _, _ in one.phases] for one in (before, after))
    for kind, at, to, other, end in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind == "equal":
            for one, two in zip(before.phases[at:to], after.phases[other:end], strict=True):
                yield one[:2], one[2:], two[2:]
            continue
        yield from ((run[:2], run[2:], None) for run in before.phases[at:to])
        yield from ((run[:2], None, run[2:]) for run in after.phases[other:end])


def _point_count(run: _PointRange) -> int:
    return run[1] - run[0] + 1 if run is not None else 0


def _stretch_points(run: _PointRange, point_count: int) -> list[int | None]:
    """The run's point indices, stretched over ``point_count`` points."""
    if run is None:
        return [None] * point_count
    return [run[0] + at * _point_count(run) // point_count for at in range(point_count)]


def _select_points(curve: MemoryCurve, points: list[int | None]) -> dict[str, list[int | None]]:
    """MiB of each category at the points."""
    held = {clean_line(name): column for name, column in curve.held_mib.items()}
    return {name: [None if at is None else column[at] for at in points] for name, column in held.items()}
