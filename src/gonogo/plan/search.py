"""The search: formulas say what is worth a rehearsal, rehearsals say what is true, and the best is rehearsed whole."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from gonogo.errors import UserError
from gonogo.evidence.rehearsal import RankRecord
from gonogo.finding import Text
from gonogo.plan.choice import Choice, by_formula, by_peak
from gonogo.plan.closed_form import lower_bound
from gonogo.plan.depth import depths
from gonogo.plan.extend import Peak, extended, peak_of
from gonogo.plan.jobs import Facts, Measured
from gonogo.plan.measure import Cell, Meter, NotMeasured
from gonogo.plan.request import PlanRequest
from gonogo.plan.strategy import Family, Strategy, families, micro_batches

GROUPS_TO_REHEARSE = 4
FINALISTS = 2
_TRIES = 3
_LIVE_WINDOW = 1_000_000_000
"""DeepSpeed's stage3_max_live_parameters: fewer layers than these hold take less than the full depth does."""
_LEAST_DEPTH = 3
_TOLERANCE = 1.3
"""By how much a formula may be over what there is, and the strategy still be worth a rehearsal."""
Say = Callable[[Text], None]
Group = tuple[Family, bool]
"""A family, with or without checkpointing: within it only the micro-batch differs."""


@dataclass
class Plan:
    """What was found."""

    request: PlanRequest
    facts: Facts
    global_batch: int
    fitting: list[Choice]
    """The best of each group that fits, fastest first."""
    too_large: list[Choice]
    """The smallest of each group that does not fit."""
    failed: list[tuple[Choice, str]] = field(default_factory=list)
    """Strategies whose rehearsal came to no figures, and why."""
    records: list[RankRecord] = field(default_factory=list)
    seconds: float = 0.0
    rehearsed: int = 0
    reused: int = 0


class _Search:
    def __init__(self, request: PlanRequest, meter: Meter, say: Say) -> None:
        self.request = request
        self.meter = meter
        self.say = say
        self.facts = meter.facts()
        self.global_batch = request.global_batch or default_global_batch(request.world_size)
        self.sizes = micro_batches(self.global_batch, request.world_size)
        self.known: dict[Group, tuple[Strategy, Peak]] = {}
        self.whole: dict[Strategy, Choice] = {}
        self.failed: dict[Group, str] = {}
        self.records: list[RankRecord] = []

    def strategy(self, group: Group, micro_batch: int) -> Strategy:
        share = self.global_batch // self.request.world_size
        return Strategy(group[0], group[1], micro_batch, share // micro_batch)

    def choice(self, group: Group, micro_batch: int) -> Choice:
        strategy = self.strategy(group, micro_batch)
        if strategy in self.whole:
            return self.whole[strategy]
        if group in self.known:
            at, peak = self.known[group]
            return by_peak(self.request, self.facts, strategy, at, peak, "extended")
        return by_formula(self.request, self.facts, strategy)

    def best(self, group: Group) -> Choice:
        """The fastest of a group that fits; where none does, the smallest."""
        choices = [self.choice(group, size) for size in self.sizes]
        fitting = [choice for choice in choices if choice.room.fits]
        return max(fitting, key=lambda choice: choice.tokens_per_second) if fitting else choices[0]

    def groups(self) -> list[Group]:
        world, machine = self.request.world_size, self.request.machine
        found = families(world, nvme=self.request.nvme_bytes is not None, host=machine.host_bytes != 0)
        return [(family, checkpointing) for family in found for checkpointing in (False, True)]

    def hopeless(self, group: Group) -> bool:
        """Whether model states alone, by formula, are far beyond the accelerator's memory."""
        accelerator = self.request.machine.accelerator
        capacity = accelerator.total_bytes - accelerator.allowance_bytes
        return lower_bound(self.facts, group[0], self.request.world_size) > capacity * _TOLERANCE

    # -- measuring ---------------------------------------------------------------------------------------------------

    def rehearse_groups(self, groups: list[Group]) -> None:
        """Measure each group once, at two depths, at the micro-batch that is best by what is known."""
        cells: list[Cell] = []
        asked: list[tuple[Group, Strategy, tuple[int, int] | None, int]] = []
        for group in groups:
            strategy = self.best(group).strategy
            at = depths(self.meter.config, self.least_depth(group[0]))
            asked.append((group, strategy, at, len(cells)))
            cells += [self.cell(strategy, depth) for depth in (at or (0,))]
        answers = self.meter.measure(cells)
        for group, strategy, at, first in asked:
            found = answers[first : first + (2 if at else 1)]
            peaks = [self.peak(group, answer) for answer in found]
            if any(peak is None for peak in peaks):
                continue
            known = [peak for peak in peaks if peak is not None]
            peak = extended(known[0], known[1], at, self.facts.depth) if at else known[0]
            self.known[group] = (strategy, peak)

    def least_depth(self, family: Family) -> int:
        """Under ZeRO-3, enough layers for the window of gathered parameters to be full."""
        if family.zero < 3 or not self.facts.layer_parameters:
            return _LEAST_DEPTH
        return max(_LEAST_DEPTH, _LIVE_WINDOW // self.facts.layer_parameters + 2)

    def rehearse_whole(self, choices: list[Choice]) -> None:
        """Rehearse strategies at the full depth."""
        answers = self.meter.measure([self.cell(choice.strategy, 0) for choice in choices])
        for choice, answer in zip(choices, answers, strict=True):
            group = (choice.strategy.family, choice.strategy.checkpointing)
            peak = self.peak(group, answer)
            if peak is not None:
                made = by_peak(self.request, self.facts, choice.strategy, choice.strategy, peak, "rehearsed")
                self.whole[choice.strategy] = made

    def cell(self, strategy: Strategy, depth: int) -> Cell:
        measured = Strategy(strategy.family, strategy.checkpointing, strategy.micro_batch, 1)
        return Cell(measured, depth, self.request.seq_len, self.request.world_size)

    def peak(self, group: Group, answer: Measured | NotMeasured) -> Peak | None:
        if isinstance(answer, NotMeasured):
            self.failed[group] = str(answer)
            return None
        self.records.append(answer.record)
        if answer.record.outcome not in ("completed", "out-of-memory"):
            failure = answer.record.failure
            self.failed[group] = failure.message if failure is not None else answer.record.outcome
            return None
        return peak_of(answer)


def default_global_batch(world_size: int) -> int:
    """The least multiple of the world size that is 64 or more."""
    return -(-64 // world_size) * world_size


def check_batch(request: PlanRequest) -> None:
    """Raise UserError where the world does not divide the global batch."""
    batch, world = request.global_batch, request.world_size
    if batch is not None and batch % world:
        raise UserError(
            Text(
                "--global-batch {batch}: {world} GPUs can't share it evenly; {below} or {above} they can",
                "--global-batch {batch}：无法平均分给 {world} 张卡；可改为 {below} 或 {above}",
            ).format(batch=batch, world=world, below=max(batch // world, 1) * world, above=(batch // world + 1) * world)
        )


def search(request: PlanRequest, meter: Meter, say: Say) -> Plan:
    """Find the strategies that fit, fastest first. Raises NotMeasured where the model itself can't be made."""
    started = time.monotonic()
    say(Text("reading the model", "读取模型"))
    found = _Search(request, meter, say)
    groups = [group for group in found.groups() if not found.hopeless(group)]
    say(Text("rehearsing short stacks of layers", "用较少的层排练"))
    promising = sorted(groups, key=lambda group: _promise(found.best(group)))
    found.rehearse_groups(promising[:GROUPS_TO_REHEARSE])
    for _ in range(_TRIES):
        ranked = _ranked(found, groups)
        finalists = [choice for choice in ranked[:FINALISTS] if choice.source != "rehearsed"]
        if not finalists or any(choice.source == "rehearsed" for choice in ranked[:1]):
            break
        say(Text("rehearsing the best at full depth", "以完整深度排练最优方案"))
        found.rehearse_whole(finalists)
    fitting = _ranked(found, groups)
    of_group = {(choice.strategy.family, choice.strategy.checkpointing) for choice in fitting}
    too_large = [found.best(group) for group in found.groups() if group not in of_group and group not in found.failed]
    return Plan(
        request=request,
        facts=found.facts,
        global_batch=found.global_batch,
        fitting=fitting,
        too_large=sorted(too_large, key=lambda choice: choice.reserved),
        failed=[(found.best(group), why) for group, why in found.failed.items()],
        records=found.records,
        seconds=time.monotonic() - started,
        rehearsed=meter.rehearsed,
        reused=meter.reused,
    )


def _promise(choice: Choice) -> tuple[bool, float]:
    """Sorts what is worth a rehearsal: what fits by formula first, and of those the fastest."""
    return (not choice.room.fits, -choice.tokens_per_second)


def _ranked(found: _Search, groups: list[Group]) -> list[Choice]:
    """The best of each group that fits, fastest first."""
    choices = [found.best(group) for group in groups if group not in found.failed]
    fitting = [choice for choice in choices if choice.room.fits]
    return sorted(fitting, key=lambda choice: -choice.tokens_per_second)
