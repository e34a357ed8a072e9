"""What a page shows of logs beside the findings: their decisive lines in context, and when each rank ended."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gonogo.evidence.log.failure_log import FailureLog
from gonogo.evidence.log.role import Role
from gonogo.finding import Finding
from gonogo.finding.logs import Excerpt, ExcerptLine, RankEnd

_BEFORE, _AFTER = 8, 8
"""Lines around the decisive one."""
_MAX_EXCERPTS = 3
_MAX_LINE_LENGTH = 400
_MAX_RANKS = 512
_FAILURE_ROLES = (Role.ROOT, Role.CASCADE)


def excerpts(log: FailureLog, findings: Sequence[Finding]) -> Iterator[Excerpt]:
    """Of the first findings, the lines around the one that shows it."""
    lines = {(line.path, line.number): line for line in log.lines}
    decisive = {(span.path, span.line) for finding in findings for span in finding.spans}
    shown: set[tuple[str, int]] = set()
    for finding in findings[:_MAX_EXCERPTS]:
        place = next(((span.path, span.line) for span in finding.spans if (span.path, span.line) in lines), None)
        if place is None or place in shown:
            continue
        line = lines[place]
        around = [*log.lines_before(line, _BEFORE), line, *log.lines_after(line, _AFTER)]
        shown |= {(one.path, one.number) for one in around}
        yield Excerpt(
            line.path,
            tuple(
                ExcerptLine(
                    one.number, one.rank, one.text.rstrip()[:_MAX_LINE_LENGTH], (one.path, one.number) in decisive
                )
                for one in around
            ),
        )


def rank_ends(log: FailureLog) -> Iterator[RankEnd]:
    """When each rank spoke first of its failure, in that order; only ranks whose lines say the time."""
    first: dict[int, RankEnd] = {}
    for error in log.errors:
        if error.role not in _FAILURE_ROLES:
            continue
        for rank, time in error.times:
            if rank not in first or time < first[rank].time:
                first[rank] = RankEnd(rank, time, error.role is Role.ROOT, error.type)
    yield from sorted(first.values(), key=lambda end: (end.time, end.rank))[:_MAX_RANKS]
