"""Convert a guarded run's failures to a rehearsal's record, so that the same hazards can judge both."""

from __future__ import annotations

from typing import cast

from gonogo.evidence.guarded.divergence import find_divergence
from gonogo.evidence.guarded.ends import (
    cached_per_run,
    deepspeed_config,
    fatal_exception,
    ranks_have_different_models,
    root_deaths,
)
from gonogo.evidence.guarded.guarded_run import GuardedRank, GuardedRun
from gonogo.evidence.guarded.records import ExceptionRecord
from gonogo.evidence.rehearsal.record import AcceleratorFacts, Failure, Outcome, Phase, RankRecord, RehearsalRecord


@cached_per_run
def to_rehearsal_record(run: GuardedRun) -> RehearsalRecord:
    """A guarded run as a rehearsal's record: its root-cause exceptions, and where its collectives diverge.

    Facts that only a rehearsal knows, such as memory, are empty, so that no hazard reports them.
    """
    failed = {death.rank for death in root_deaths(run) if death.how == "exception"}
    diverged = (
        find_divergence(run) if not ranks_have_different_models(run) else None
    )  # otherwise the difference is the cause, and is reported
    waiting = {rank for side in diverged.sides for rank in side.ranks} if diverged is not None else set()
    hosts = {rank.start.host for rank in run.ranks if rank.start is not None}
    start = next((rank.start for rank in run.ranks if rank.start is not None), None)
    gpu = start.gpu if start is not None else None
    nodes = max(len(hosts), 1)
    return RehearsalRecord(
        command=list(run.command),
        cwd=run.launches[0].cwd if run.launches else "",
        world_size=run.world_size,
        nodes=nodes,
        ranks_per_node=max(run.world_size // nodes, 1),
        accelerator=AcceleratorFacts(gpu.name if gpu else "CPU", "cuda" if gpu else "cpu", gpu.bytes if gpu else 0, 0),
        steps=max((rank.last_step for rank in run.ranks), default=0),
        host_memory_bytes=None,
        ranks=[_rank_record(run, rank, rank.rank in failed, rank.rank in waiting) for rank in run.ranks],
        launcher="",
        divergence=diverged,
    )


def _rank_record(run: GuardedRun, rank: GuardedRank, has_failed: bool, has_diverged: bool) -> RankRecord:
    raised = fatal_exception(rank) if has_failed and not has_diverged else None
    outcome: Outcome = "diverged" if has_diverged else "raised" if raised is not None else "completed"
    start = rank.start
    return RankRecord(
        rank=rank.rank,
        local_rank=start.local_rank if start is not None else rank.rank,
        device=(start.gpu.device if start is not None and start.gpu is not None else "") or "cpu",
        outcome=outcome,
        steps=rank.last_step,
        failure=failure_of(raised) if raised is not None else None,
        deepspeed_config=deepspeed_config(run),
        versions=dict(start.versions) if start is not None else {},
    )


def failure_of(exception: ExceptionRecord) -> Failure:
    """Convert an exception recorded by the guard to a rehearsal's."""
    return Failure(
        type=exception.type,
        message=exception.message,
        frames=exception.frames,
        phase=cast(Phase, exception.phase),  # also allows "between" (steps), which a rehearsal doesn't have
        step=exception.step,
        operands=exception.operands,
        module=exception.module,
        module_class=exception.module_class,
        traceback=exception.traceback,
    )
