"""Summarizes a guarded run from its records, for the report."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

import msgspec

from gonogo.evidence.guarded.ends import RankDeath, fatal_exception, rank_deaths, root_deaths, signal_name
from gonogo.evidence.guarded.guarded_run import GuardedRank, GuardedRun
from gonogo.evidence.guarded.standstill import Hang, find_hang
from gonogo.evidence.guarded.whereabouts import innermost_user_frame
from gonogo.finding import guarded_run
from gonogo.finding.guarded_run import RankSteps, StepsOverTime

_POINTS, _FIGURES = 400, 24_000
"""The most time bins, and the most values per metric in total, so that the page of a thousand ranks stays small."""


def guarded_summary(run: GuardedRun) -> guarded_run.GuardedRunSummary:
    """The summary of the run for the report: how each rank ended, its memory, where it stopped."""
    ended = {death.rank: death for death in rank_deaths(run)}
    first = next(iter(root_deaths(run)), None)
    still = find_hang(run)
    return guarded_run.GuardedRunSummary(
        folder=run.folder,
        command=tuple(run.command),
        exit_status=run.exit_status,
        world_size=run.world_size,
        hosts=tuple(sorted({rank.start.host for rank in run.ranks if rank.start is not None})),
        started=run.started,
        seconds=round(run.ended - run.started, 3) if run.ended and run.started else None,
        steps=max((rank.last_step for rank in run.ranks), default=0),
        first_failed=_death_summary(first) if first is not None else None,
        standstill=_hang_summary(still) if still is not None else None,
        ranks=tuple(_summarize_rank(run, rank, ended.get(rank.rank)) for rank in run.ranks),
        missing_ranks=tuple(number for number in range(run.world_size) if run.ranks and run.rank(number) is None),
        launches=run.launches,
        stalled=tuple(stall for rank in run.ranks for stall in _stall_summaries(rank)),
        over_time=steps_over_time(run),
    )


def _death_summary(death: RankDeath) -> guarded_run.DeathSummary:
    return guarded_run.DeathSummary(
        rank=death.rank,
        how=death.how,
        time=death.time,
        signal=signal_name(death.signal) if death.signal is not None else None,
        status=death.status,
        consequence=death.consequence,
    )


def _hang_summary(hang: Hang) -> guarded_run.HangSummary:
    rows = []
    for rank, seen in sorted(hang.seen.items()):
        pending = seen.pending
        at = innermost_user_frame(seen.frames)
        unnamed = pending is None and rank in hang.waiting and hang.call is not None
        call = hang.call if unnamed else pending
        state = "late" if rank in hang.late else "waiting" if rank in hang.waiting else "elsewhere"
        rows.append(
            guarded_run.Wait(
                rank=rank,
                state=state,
                operator=call.operator if call is not None else None,
                call=call.index + 1 if call is not None and call.group else None,
                place=f"{at.path}:{at.line}" if at is not None else None,
                function=at.function if at is not None else None,
            )
        )
    rows += [guarded_run.Wait(rank, "silent") for rank in hang.silent if rank not in hang.seen]
    return guarded_run.HangSummary(
        seconds=round(hang.seconds, 1),
        median_step=round(hang.median, 3),
        operator=hang.call.operator if hang.call is not None else None,
        waiting=tuple(hang.waiting),
        late=tuple(hang.late),
        ranks=tuple(rows),
    )


def _stall_summaries(rank: GuardedRank) -> Iterator[guarded_run.StallSummary]:
    """The last record of each of a rank's stalls."""
    last = {(stall.step, stall.phase): stall for stall in rank.stalls}
    ended = {resumed.step: resumed.seconds for resumed in rank.resumed}
    for (step, phase), stall in last.items():
        pending = next((call for call in reversed(stall.collectives) if not call.returned), None)
        frames = pending.frames if pending is not None else stall.threads[0].frames if stall.threads else ()
        at = innermost_user_frame(frames)
        yield guarded_run.StallSummary(
            rank=rank.rank,
            step=step,
            phase=phase,
            seconds=round(max(stall.seconds, ended.get(step, 0.0)), 1),
            ended=step in ended,
            operator=pending.operator if pending is not None else None,
            call=pending.index + 1 if pending is not None else None,
            place=f"{at.path}:{at.line}" if at is not None else None,
            function=at.function if at is not None else None,
        )


def _summarize_rank(run: GuardedRun, rank: GuardedRank, death: RankDeath | None) -> guarded_run.GuardedRankSummary:
    start = rank.start
    raised = fatal_exception(rank)
    census = rank.placements[-1] if rank.placements else None
    return guarded_run.GuardedRankSummary(
        rank=rank.rank,
        local_rank=start.local_rank if start is not None else None,
        host=start.host if start is not None else None,
        pid=start.pid if start is not None else None,
        gpu=start.gpu if start is not None else None,
        versions=dict(start.versions) if start is not None else {},
        outcome=rank_outcome(run, rank, death),
        signal=signal_name(death.signal) if death is not None and death.signal is not None else None,
        steps=rank.last_step,
        seconds_per_step=_seconds_per_step(rank),
        last_seen=rank.last_time or None,
        host_peak_bytes=max((step.host_bytes for step in rank.steps), default=0),
        gpu_peak_reserved_bytes=max((step.gpu_reserved for step in rank.steps), default=0),
        gpu_peak_used_bytes=max((step.gpu_used for step in rank.steps), default=0),
        failure=msgspec.convert(msgspec.to_builtins(raised), guarded_run.GuardedFailure | None),
        census=msgspec.convert(msgspec.to_builtins(census), guarded_run.PlacementSummary | None),
        stalls=len(rank.stalls),
        warnings=rank.warnings,
        nonfinite=rank.nonfinite,
        guard_faults=tuple(guarded_run.GuardFault(one.part, one.type, one.message) for one in rank.faults),
        restarts=len(rank.earlier),
    )


def rank_outcome(run: GuardedRun, rank: GuardedRank, death: RankDeath | None) -> str:
    """One of ``completed``, ``raised``, ``killed`` (by a signal), ``ended``, ``vanished``, ``running``."""
    if death is not None:
        how = {"exception": "raised", "signal": "killed", "status": "exited", "vanished": "vanished"}[death.how]
        return f"{how}, following" if death.consequence else how
    if rank.end is not None or run.exit_status is not None:
        return "completed"
    return "running"


def _seconds_per_step(rank: GuardedRank) -> float | None:
    lengths = [step.seconds for step in rank.steps for _ in range(min(step.steps, 1000)) if step.seconds]
    return round(statistics.median(lengths), 4) if lengths else None


def steps_over_time(run: GuardedRun) -> StepsOverTime | None:
    """Time and memory of each rank's steps; None if there are fewer than two steps."""
    ranks = [rank for rank in run.ranks if rank.steps]
    last = max((rank.steps[-1].step for rank in ranks), default=0)
    if last < 2:
        return None
    width = -(-last // max(16, min(_POINTS, _FIGURES // len(ranks))))
    capacity = max(step.gpu_total for rank in ranks for step in rank.steps)
    return StepsOverTime(width, tuple(_downsampled_steps(rank, width, -(-last // width)) for rank in ranks), capacity)


def _downsampled_steps(rank: GuardedRank, width: int, bin_count: int) -> RankSteps:
    """The highest values in each bin; a record of several steps counts in every bin that it overlaps."""
    seconds: list[float | None] = [None] * bin_count
    gpu: list[int | None] = [None] * bin_count
    host: list[int | None] = [None] * bin_count
    for step in rank.steps:
        first, last = max(step.step - max(step.steps, 1), 0), max(step.step - 1, 0)
        for at in range(first // width, min(last // width + 1, bin_count)):
            seconds[at] = max(seconds[at] or 0.0, round(max(step.slowest, step.seconds), 4))
            gpu[at] = max(gpu[at] or 0, step.gpu_reserved)
            host[at] = max(host[at] or 0, step.host_bytes)
    return RankSteps(rank.rank, tuple(seconds), tuple(gpu), tuple(host))
