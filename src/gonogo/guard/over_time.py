"""The steps of all ranks in a few hundred stretches: what the page of a guarded run draws."""

from __future__ import annotations

from gonogo.evidence.guarded.guarded_run import GuardedRank, GuardedRun
from gonogo.finding.guarded_run import RankSteps, StepsOverTime

_POINTS, _FIGURES = 400, 24_000
"""The most stretches, and the most figures of a kind in all: a page of a thousand ranks has to stay small."""


def steps_over_time(run: GuardedRun) -> StepsOverTime | None:
    """What each rank's steps took and held; None where none was made."""
    ranks = [rank for rank in run.ranks if rank.steps]
    last = max((rank.steps[-1].step for rank in ranks), default=0)
    if last < 2:
        return None
    width = -(-last // max(16, min(_POINTS, _FIGURES // len(ranks))))
    capacity = max(step.gpu_total for rank in ranks for step in rank.steps)
    return StepsOverTime(width, tuple(_in_stretches(rank, width, -(-last // width)) for rank in ranks), capacity)


def _in_stretches(rank: GuardedRank, width: int, stretches: int) -> RankSteps:
    """The highest figures of each stretch; a record of several steps tells of each stretch that it reaches into."""
    seconds: list[float | None] = [None] * stretches
    gpu: list[int | None] = [None] * stretches
    host: list[int | None] = [None] * stretches
    for step in rank.steps:
        first, last = max(step.step - max(step.steps, 1), 0), max(step.step - 1, 0)
        for at in range(first // width, min(last // width + 1, stretches)):
            seconds[at] = max(seconds[at] or 0.0, round(max(step.slowest, step.seconds), 4))
            gpu[at] = max(gpu[at] or 0, step.gpu_reserved)
            host[at] = max(host[at] or 0, step.host_bytes)
    return RankSteps(rank.rank, tuple(seconds), tuple(gpu), tuple(host))
