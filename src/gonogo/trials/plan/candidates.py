"""The strategies of one request, each judged by the best that is known of it so far."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from gonogo.trials.plan.choice import Choice, by_formula, by_peak, capacity_of
from gonogo.trials.plan.closed_form import Calibration, buffers, lower_bound
from gonogo.trials.plan.extend import Peak, extended, peak_of
from gonogo.trials.plan.measure import Measurement, Meter, NotMeasured
from gonogo.trials.plan.request import PlanRequest
from gonogo.trials.plan.roofline import ALIKE
from gonogo.trials.plan.strategy import Family, Strategy, families, micro_batches
from gonogo.virtual.measuring.depth import depths
from gonogo.virtual.measuring.jobs import Facts, Measured

Group = tuple[Family, bool]
"""A family, with or without checkpointing: within it only the micro-batch differs."""

_LEAST_DEPTH = 3
_RECOMPUTING = 4 / 3
"""Computing with checkpointing over computing without: forward is run again, a third of forward and backward."""


class Candidates:
    """What may be chosen; rehearsals make it known better."""

    def __init__(self, request: PlanRequest, facts: Facts, meter: Meter) -> None:
        self.request = request
        self.facts = facts
        self.meter = meter
        self.global_batch = request.global_batch or default_global_batch(request.world_size)
        self.sizes = micro_batches(self.global_batch, request.world_size)
        self.failed: dict[Group, str] = {}
        """Groups whose rehearsal came to no figures, and why."""
        self._peaks: dict[Group, tuple[Strategy, Peak]] = {}
        self._whole: dict[Strategy, Choice] = {}
        self._capacity = capacity_of(request)

    # -- judging -----------------------------------------------------------------------------------------------------

    def groups(self) -> list[Group]:
        """All of them, simplest first."""
        world, machine = self.request.world_size, self.request.machine
        found = families(world, nvme=self.request.nvme_bytes is not None, host=machine.host_bytes != 0)
        return [(family, checkpointing) for family in found for checkpointing in (False, True)]

    def strategy(self, group: Group, micro_batch: int) -> Strategy:
        """The strategy of a group with that micro-batch, and the accumulation that makes up the global batch."""
        share = self.global_batch // self.request.world_size
        return Strategy(group[0], group[1], micro_batch, max(share // micro_batch, 1))

    def choice(self, group: Group, micro_batch: int) -> Choice:
        """What is known of it."""
        strategy = self.strategy(group, micro_batch)
        if strategy in self._whole:
            return self._whole[strategy]
        if group in self._peaks:
            at, peak = self._peaks[group]
            return by_peak(self.request, self.facts, strategy, at, peak, "extended")
        return by_formula(self.request, self.facts, strategy, self._calibration())

    def choices(self, group: Group) -> list[Choice]:
        """Of a group, by micro-batch."""
        return [self.choice(group, size) for size in self.sizes]

    def best(self, group: Group) -> Choice | None:
        """The fastest of a group that fits. Small buckets are told of only where they decide."""
        if group[0].small_buckets and (group not in self._peaks or self.best(_usual(group)) is not None):
            return None
        return _fastest([choice for choice in self.choices(group) if choice.room.fits])

    def hopeful(self, group: Group) -> Choice | None:
        """The fastest of a group that may fit."""
        if group in self.failed or not self._decides(group):
            return None
        return _fastest([choice for choice in self.choices(group) if choice.may_fit(self._capacity)])

    def surely_too_large(self, group: Group) -> bool:
        """Whether not even the smallest of a group fits."""
        return self.hopeless(group) or self.choices(group)[0].surely_too_large(self._capacity)

    def _decides(self, group: Group) -> bool:
        """Whether small buckets may make fit what with the usual ones, as a rehearsal has shown, does not."""
        if not group[0].small_buckets:
            return True
        usual = _usual(group)
        if usual not in self._peaks or self.best(usual) is not None:
            return False
        saved = buffers(self.facts, usual[0]) - buffers(self.facts, group[0])
        return any(
            choice.room.others_fit and choice.allocated - saved <= self._capacity for choice in self.choices(usual)
        )

    def is_measured(self, group: Group) -> bool:
        """Whether a rehearsal has told of it."""
        return group in self._peaks

    def hopeless(self, group: Group) -> bool:
        """Whether model states alone, by formula, are beyond the accelerator's memory."""
        return lower_bound(self.facts, group[0], self.request.world_size) > self._capacity

    def ranked(self, choices: list[Choice]) -> list[Choice]:
        """Fastest first; of those that are about equally fast, the simplest first."""
        order = {group: number for number, group in enumerate(self.groups())}
        left = sorted(choices, key=lambda choice: -choice.tokens_per_second)
        found: list[Choice] = []
        while left:
            alike = [choice for choice in left if choice.tokens_per_second >= left[0].tokens_per_second * (1 - ALIKE)]
            found += sorted(alike, key=lambda choice: order[group_of(choice.strategy)])
            left = left[len(alike) :]
        return found

    def _calibration(self) -> Calibration:
        """What was measured of some strategies and holds for the others."""
        seconds: dict[bool, float] = {}
        activations: dict[bool, float] = {}
        for (_, checkpointing), (at, peak) in self._peaks.items():
            computing = peak.forward.seconds + peak.backward.seconds
            seconds.setdefault(checkpointing, computing / at.micro_batch)
            of_sample = peak.of_samples / at.micro_batch
            activations[checkpointing] = max(of_sample, activations.get(checkpointing, 0.0))
        if len(seconds) == 1:
            (checkpointing, taken), *_ = seconds.items()
            seconds[not checkpointing] = taken / _RECOMPUTING if checkpointing else taken * _RECOMPUTING
        return Calibration(seconds, activations)

    # -- measuring ---------------------------------------------------------------------------------------------------

    def rehearse_short(self, choices: list[Choice]) -> None:
        """Measure the group of each choice at its micro-batch, at two depths."""
        strategies = [choice.strategy for choice in choices]
        cells = [cell for strategy in strategies for cell in self.short_cells(strategy)]
        answers = iter(self.meter.measure(cells))
        for strategy in strategies:
            peak = self.peak_from(strategy, [next(answers) for _ in self.short_cells(strategy)])
            if peak is not None:
                self._peaks[group_of(strategy)] = (strategy, peak)

    def short_cells(self, strategy: Strategy) -> list[Measurement]:
        """What to rehearse for an estimate of the full depth: two depths, or the model as it is where it is shallow."""
        at = depths(self.meter.config, self._least_depth(strategy.family))
        return [self.cell(strategy, depth) for depth in (at or (0,))]

    def peak_from(self, strategy: Strategy, answers: Sequence[Measured | NotMeasured]) -> Peak | None:
        """What the answers to :meth:`short_cells` tell of the full depth; None where one is missing."""
        peaks = [self._peak(strategy, answer) for answer in answers]
        known = [peak for peak in peaks if peak is not None]
        if len(known) < len(peaks):
            return None
        at = depths(self.meter.config, self._least_depth(strategy.family))
        return extended(known[0], known[1], at, self.facts.depth) if at else known[0]

    def rehearse_whole(self, strategy: Strategy) -> Choice | None:
        """Rehearse a strategy at the full depth, on an accelerator that lacks what the figures may be off by."""
        (answer,) = self.meter.measure([self.cell(strategy, 0, real=True)])
        peak = self._peak(strategy, answer)
        if peak is None:
            return None
        self._whole[strategy] = by_peak(self.request, self.facts, strategy, strategy, peak, "rehearsed")
        self._peaks[group_of(strategy)] = strategy, peak  # the other micro-batches of the group are known by it, too
        return self._whole[strategy]

    def cell(self, strategy: Strategy, depth: int, *, real: bool = False) -> Measurement:
        """What to rehearse of a strategy. The second micro-batch of a step shows what any later one would."""
        measured = Strategy(
            strategy.family, strategy.checkpointing, strategy.micro_batch, min(strategy.accumulation, 2)
        )
        return Measurement(measured, depth, self.request.seq_len, self.request.world_size, real=real)

    def _least_depth(self, family: Family) -> int:
        """Under ZeRO-3, enough layers for the window of parameters that stay gathered to be full."""
        if family.zero < 3 or not self.facts.layer_parameters:
            return _LEAST_DEPTH
        return max(_LEAST_DEPTH, family.live_parameters // (2 * self.facts.layer_parameters) + 2)

    def _peak(self, strategy: Strategy, answer: Measured | NotMeasured) -> Peak | None:
        group = group_of(strategy)
        if isinstance(answer, NotMeasured):
            self.failed[group] = str(answer)
            return None
        if answer.record.outcome not in ("completed", "out-of-memory"):
            failure, error = answer.record.failure, answer.record.user_error
            self.failed[group] = (
                error[0] if error else failure.message if failure is not None else answer.record.outcome
            )
            return None
        return peak_of(answer, min(strategy.accumulation, 2))


def group_of(strategy: Strategy) -> Group:
    """The group that a strategy belongs to."""
    return strategy.family, strategy.checkpointing


def _usual(group: Group) -> Group:
    """The same with buckets of DeepSpeed's own size."""
    return replace(group[0], small_buckets=False), group[1]


def default_global_batch(world_size: int) -> int:
    """The least multiple of the world size that is 64 or more."""
    return -(-64 // world_size) * world_size


def _fastest(choices: list[Choice]) -> Choice | None:
    """The fastest; of those that are about equally fast, one that was rehearsed whole."""
    most = max((choice.tokens_per_second for choice in choices), default=0.0)
    alike = [choice for choice in choices if choice.tokens_per_second >= most * (1 - ALIKE)]
    return max(alike, key=lambda choice: (choice.source == "rehearsed", choice.tokens_per_second), default=None)
