"""The search: formulas select candidates, short rehearsals measure them, and the best is rehearsed at full depth."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from msgspec.structs import replace

from gonogo.finding import Text, UserError, translated
from gonogo.finding.trials.planned import MemoryAtLength
from gonogo.trials.plan.candidates import Candidates, StrategyGroup, strategy_group
from gonogo.trials.plan.choice import Choice
from gonogo.trials.plan.measure import Meter
from gonogo.trials.plan.request import PlanRequest
from gonogo.trials.plan.sizing.batches import check_completions
from gonogo.virtual.measuring.jobs import ModelFacts

ReportProgress = Callable[[Text], None]
_MAX_PARALLEL = 2
"""Groups whose short rehearsals run in parallel: with two depths each, they keep four cores busy."""
_FULL_ROUNDS = 4
"""How many times a strategy that seemed best may turn out not to fit at full depth."""


@dataclass
class PlanResult:
    """The result of a search."""

    request: PlanRequest
    facts: ModelFacts
    global_batch: int
    fitting: list[Choice]
    """The best choice of each group that fits, fastest first."""
    too_large: list[Choice]
    """The smallest choice of each group that does not fit."""
    unsettled: list[Choice] = field(default_factory=list)
    """Choices that may or may not fit; they are no faster than the best, so they were not rehearsed at full depth."""
    failed: list[tuple[Choice, str]] = field(default_factory=list)
    """Strategies whose rehearsal produced no figures, and why."""
    memory_at: tuple[MemoryAtLength, ...] = ()
    """The memory of the first strategies at other sequence lengths, if they were asked for."""
    seconds: float = 0.0
    rehearsed: int = 0
    reused: int = 0


def check_batch(request: PlanRequest) -> None:
    """Raise UserError if the world size doesn't divide the global batch, or a prompt's completions would be split."""
    check_completions(request)
    batch, world = request.global_batch, request.world_size
    if batch is not None and batch % world:
        below, above = batch // world * world, (batch // world + 1) * world
        raise UserError(
            translated("--global-batch {batch}: can't be divided evenly among {world} GPUs; use {numbers}").format(
                batch=batch, world=world, numbers=Text(f"{below} or {above}", f"{below} 或 {above}") if below else above
            )
        )


def search(request: PlanRequest, meter: Meter, report_progress: ReportProgress) -> PlanResult:
    """Find the strategies that fit, fastest first. Raises NotMeasured if the model itself can't be built."""
    started = time.monotonic()
    report_progress(translated("reading the model"))
    candidates = Candidates(request, meter.facts(), meter)
    groups = [group for group in candidates.groups() if not candidates.exceeds_capacity(group)]
    report_progress(translated("rehearsing with few layers"))
    _measure_best(candidates, groups)
    for _ in range(_FULL_ROUNDS):
        best = _likely_fitting(candidates, groups)[:1]
        if not best or best[0].source == "rehearsed" or candidates.all_fail_identically():
            break
        report_progress(translated("rehearsing the best at full depth"))
        candidates.rehearse_full_depth(best[0].strategy)
        _measure_best(candidates, groups)
    return _build_plan(candidates, meter, time.monotonic() - started)


def _measure_best(candidates: Candidates, groups: list[StrategyGroup]) -> None:
    """Make short rehearsals until the fastest strategy of those that may fit has been measured."""
    for _ in range(len(groups)):
        hopeful = _likely_fitting(candidates, groups)[:_MAX_PARALLEL]
        unknown = [choice for choice in hopeful if not candidates.is_measured(strategy_group(choice.strategy))]
        if not unknown or hopeful[0] not in unknown or candidates.all_fail_identically():
            return
        candidates.rehearse_short(unknown)


def _likely_fitting(candidates: Candidates, groups: list[StrategyGroup]) -> list[Choice]:
    """The best choice of each group that may fit, fastest first."""
    choices = [candidates.best_that_may_fit(group) for group in groups]
    return candidates.ranked([choice for choice in choices if choice is not None])


def _build_plan(candidates: Candidates, meter: Meter, seconds: float) -> PlanResult:
    fitting: list[Choice] = []
    too_large: list[Choice] = []
    unsettled: list[Choice] = []
    for groups in _strategy_rows(candidates):
        known = [group for group in groups if group not in candidates.failed]
        found = [best for group in known if (best := candidates.best(group)) is not None]
        if found:
            fitting.append(candidates.ranked(found)[0])
            continue
        usual = [
            group
            for group in known
            if not group.family.small_buckets and candidates.is_needed(group) and candidates.choices(group)
        ]
        if not usual:
            continue  # the row with default buckets, more replicas or less context parallelism is enough
        smallest = min((candidates.smallest(group) for group in usual), key=lambda choice: choice.reserved)
        sure = all(candidates.surely_too_large(group) for group in usual)
        (too_large if sure else unsettled).append(smallest)
    return PlanResult(
        request=candidates.request,
        facts=candidates.facts,
        global_batch=candidates.global_batch,
        fitting=candidates.ranked(fitting),
        too_large=sorted(too_large, key=lambda choice: choice.reserved),
        unsettled=unsettled,
        failed=[(candidates.choices(group)[0], why) for group, why in candidates.failed.items()],
        seconds=seconds,
        rehearsed=meter.rehearsed,
        reused=meter.reused,
    )


def _strategy_rows(candidates: Candidates) -> list[list[StrategyGroup]]:
    """Groups reported as one row: each by itself, but with an engine those of equal sharding and kind of engine."""
    rows: dict[StrategyGroup, list[StrategyGroup]] = {}
    for group in candidates.groups():
        row = group
        if group.engine:
            row = group._replace(checkpointing=False, gpus=0, family=replace(group.family, small_buckets=False))
        rows.setdefault(row, []).append(group)
    return list(rows.values())
