"""The strategies of one request, each judged by the best measurement of it so far."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from gonogo.finding.trials.planned import SPEED_TOLERANCE
from gonogo.trials.plan.choice import Choice, estimate_by_formula, estimate_from_peak, usable_gpu_memory
from gonogo.trials.plan.closed_form import Calibration, buffer_bytes, min_state_bytes
from gonogo.trials.plan.extrapolation import Peak, extrapolate, measured_peak
from gonogo.trials.plan.measure import Measurement, Meter, NotMeasured
from gonogo.trials.plan.request import PlanRequest
from gonogo.trials.plan.sizing import batches, engine_layouts
from gonogo.trials.plan.strategy import Family, Strategy, micro_batches, strategy_families
from gonogo.trials.plan.task.kinds import Reference
from gonogo.trials.plan.task.rollout import RolloutChoice, Where
from gonogo.virtual.measuring.depth import measurement_depths
from gonogo.virtual.measuring.jobs import Measured, ModelFacts


class StrategyGroup(NamedTuple):
    """Strategies with equal trainer settings; they differ only in the micro-batch and the rollout engine."""

    family: Family
    checkpointing: bool
    reference: Reference = ""
    engine: Where = ""
    gpus: int = 0
    """GPUs of a rollout server."""


_CONTEXT_SIZES = (2, 4, 8)
_MIN_DEPTH = 3
_MIN_SAME_FAILURES = 4
"""At least this many rehearsals that fail with the same message, which covers two or more sharding strategies."""
_RECOMPUTE_FACTOR = 4 / 3
"""Compute with activation checkpointing relative to compute without: it repeats the forward, a third of the total."""


class Candidates:
    """The strategies to choose from; estimates improve with each rehearsal."""

    def __init__(self, request: PlanRequest, facts: ModelFacts, meter: Meter) -> None:
        self.request = request
        self.facts = facts
        self.meter = meter
        self.global_batch = batches.global_batch(request)
        self.failed: dict[StrategyGroup, str] = {}
        """Groups whose rehearsal came to no figures, and why."""
        self._peaks: dict[StrategyGroup, tuple[Strategy, Peak]] = {}
        self._whole: dict[Strategy, Choice] = {}
        self._choices: dict[StrategyGroup, list[Choice]] = {}
        """What :meth:`choices` came to, until something else is known."""
        self._capacity = usable_gpu_memory(request)
        self._has_parallelism_config = _has_module("accelerate", "parallelism_config")

    # -- judging -----------------------------------------------------------------------------------------------------

    def groups(self) -> list[StrategyGroup]:
        """All groups, simplest first."""
        asked, machine = self.request.task, self.request.machine
        references: tuple[Reference, ...] = ("",)
        engines: list[tuple[Where, int]] = [("", 0)]
        if asked is not None:
            references, engines = (
                asked.references(self.request.tune),
                list(engine_layouts.list_engine_layouts(self.request, self.facts)),
            )
        found = []
        for engine, gpus in engines:
            world = self.trainer_request(gpus).world_size
            for family in strategy_families(
                world,
                nvme=self.request.nvme_bytes is not None,
                host=machine.host_bytes != 0,
                sharding=self.request.sharding,
                nodes=machine.nodes if self._has_parallelism_config else 1,
                context_sizes=self._context_sizes(fsdp=True),
                ulysses_sizes=self._context_sizes(fsdp=False),
                tensor_sizes=self._sizes_in_node(self.facts.tensor_sizes),
                expert_sizes=self._sizes_in_node(self.facts.expert_sizes)[-1:],  # as many as a node has room for
            ):
                kinds = (True,) if family.context > 1 else (False, True)  # sequences are split if memory is short
                for reference in references:
                    found += [StrategyGroup(family, kept, reference, engine, gpus) for kept in kinds]
        return found

    def trainer_request(self, gpus: int) -> PlanRequest:
        """The request, limited to the GPUs that a rollout server with ``gpus`` GPUs leaves."""
        return self.request.without_server_gpus(gpus)

    def micro_batches(self, group: StrategyGroup) -> tuple[int, ...]:
        """The micro-batches of a group, smallest first."""
        request = self.trainer_request(group.gpus)
        ranks = group.family.data_ranks(request.world_size)
        return micro_batches(batches.global_batch(request), ranks, batches.min_micro_batch(request))

    def strategy(self, group: StrategyGroup, micro_batch: int, rollout: RolloutChoice | None = None) -> Strategy:
        """The strategy of a group with that micro-batch, and the accumulation that makes up the global batch.

        ``rollout``: how completions are generated; by default, the way that takes the least memory beside the
        trainer.
        """
        request = self.trainer_request(group.gpus)
        ranks = group.family.data_ranks(request.world_size)
        times = max(batches.global_batch(request) // ranks // micro_batch, 1)
        made = rollout or engine_layouts.smallest_rollout(
            self.request, self.facts, group.engine, group.gpus, micro_batch * times
        )
        return Strategy(group.family, group.checkpointing, micro_batch, times, group.reference, made)

    def choice(self, group: StrategyGroup, micro_batch: int, rollout: RolloutChoice | None = None) -> Choice:
        """The best estimate for a strategy so far: rehearsed at full depth, extrapolated, or by formula."""
        strategy = self.strategy(group, micro_batch, rollout)
        if strategy in self._whole:
            return self._whole[strategy]
        if group in self._peaks:
            at, peak = self._peaks[group]
            return estimate_from_peak(self.trainer_request(group.gpus), self.facts, strategy, at, peak, "extended")
        return estimate_by_formula(self.trainer_request(group.gpus), self.facts, strategy, self._calibration())

    def choices(self, group: StrategyGroup) -> list[Choice]:
        """The choices of a group, by micro-batch; several per micro-batch if there is an engine."""
        if group not in self._choices:
            sizes = self.micro_batches(group)
            self._choices[group] = [choice for size in sizes for choice in self._choices_of_micro_batch(group, size)]
        return self._choices[group]

    def _choices_of_micro_batch(self, group: StrategyGroup, micro_batch: int) -> Iterator[Choice]:
        """The choices for a micro-batch. A colocated engine gets the largest share that fits, else the smallest."""
        if group.engine not in ("colocate", "server"):
            yield self.choice(group, micro_batch)
            return
        times = self.strategy(group, micro_batch).accumulation
        for rising in engine_layouts.rollout_choices(
            self.request, self.facts, group.engine, group.gpus, micro_batch * times
        ):
            low, high = 0, len(rising)
            found = self.choice(group, micro_batch, rising[-1])
            if not found.room.fits and high > 1:
                found, high = self.choice(group, micro_batch, rising[0]), high - 1
                while found.room.fits and high - low > 1:
                    middle = (low + high) // 2
                    trial = self.choice(group, micro_batch, rising[middle])
                    found, low, high = (trial, middle, high) if trial.room.fits else (found, low, middle)
            yield found

    def smallest(self, group: StrategyGroup) -> Choice:
        """The choice of a group that takes the least memory: if none fits, the nearest to fitting."""
        return min(self.choices(group), key=lambda choice: (not choice.room.others_fit, choice.reserved))

    def best(self, group: StrategyGroup) -> Choice | None:
        """The fastest choice of a group that fits. Smaller buckets count only if the default ones don't fit."""
        if not self.is_needed(group) or (
            group.family.small_buckets
            and (group not in self._peaks or self.best(_with_default_buckets(group)) is not None)
        ):
            return None
        return _fastest_choice([choice for choice in self.choices(group) if choice.room.fits])

    def best_that_may_fit(self, group: StrategyGroup) -> Choice | None:
        """The fastest choice of a group that may fit."""
        if group in self.failed or not self.is_needed(group) or not self._may_fit_with_small_buckets(group):
            return None
        return _fastest_choice([choice for choice in self.choices(group) if choice.may_fit(self._capacity)])

    def is_needed(self, group: StrategyGroup) -> bool:
        """Whether a group counts: one whose communication is more than another's, only if that one doesn't fit.

        Replicas are sharded over as few nodes as have room for them, and a sequence over as few GPUs.
        """
        before = self._with_less_communication(group)
        if before is None:
            return True
        if before in self.failed:
            return False
        shown = before in self._peaks and not any(choice.room.fits for choice in self.choices(before))
        return (shown or self.surely_too_large(before)) and self.is_needed(before)

    def _with_less_communication(self, group: StrategyGroup) -> StrategyGroup | None:
        family = group.family
        if family.tensor > 1:
            smaller = max((size for size in self.facts.tensor_sizes if size < family.tensor), default=1)
            return group._replace(family=replace(family, tensor=smaller))
        if family.context > 1:
            sizes = self._context_sizes(fsdp=family.fsdp)
            smaller = max((size for size in sizes if size < family.context), default=1)
            return group._replace(family=replace(family, context=smaller))
        nodes = self.request.machine.nodes
        if family.replicas in (1, nodes):
            return None
        more = min(count for count in range(family.replicas + 1, nodes + 1) if nodes % count == 0)
        return group._replace(family=replace(family, replicas=more))

    def _context_sizes(self, *, fsdp: bool) -> tuple[int, ...]:
        """Over how many GPUs of a node a sequence may be split. Ring attention cuts it into twice as many parts."""
        request = self.request
        count, length = request.machine.count, request.seq_len
        if not self._has_parallelism_config or request.attention != "sdpa" or request.task is not None:
            return ()
        sizes, parts = (_CONTEXT_SIZES, 2) if fsdp else (self.facts.ulysses_sizes, 1)
        return tuple(size for size in sizes if count % size == 0 and length % (parts * size) == 0)

    def _sizes_in_node(self, sizes: Sequence[int]) -> tuple[int, ...]:
        """Those numbers of GPUs that a node can be divided by, for what transformers shards itself, fully trained."""
        request = self.request
        if request.task is not None or request.tune != "full" or request.dtype != "bf16":
            return ()
        return tuple(size for size in sizes if request.machine.count % size == 0)

    def surely_too_large(self, group: StrategyGroup) -> bool:
        """Whether not even the smallest of a group fits."""
        return self.exceeds_capacity(group) or all(one.surely_too_large(self._capacity) for one in self.choices(group))

    def _may_fit_with_small_buckets(self, group: StrategyGroup) -> bool:
        """Whether small buckets might make a group fit that, as a rehearsal showed, doesn't fit otherwise."""
        if not group.family.small_buckets:
            return True
        usual = _with_default_buckets(group)
        if usual not in self._peaks or self.best(usual) is not None:
            return False
        saved = buffer_bytes(self.facts, usual[0]) - buffer_bytes(self.facts, group.family)
        return any(
            choice.room.others_fit and choice.allocated - saved <= self._capacity for choice in self.choices(usual)
        )

    def is_measured(self, group: StrategyGroup) -> bool:
        """Whether a rehearsal has measured the group."""
        return group in self._peaks

    def all_fail_identically(self) -> bool:
        """Whether all rehearsals fail, several of them with the same message: then the remaining ones will too."""
        whys = list(self.failed.values())
        return not self._peaks and len(whys) >= _MIN_SAME_FAILURES and len(set(whys)) == 1

    def exceeds_capacity(self, group: StrategyGroup) -> bool:
        """Whether the model states alone exceed the accelerator's memory, by formula."""
        world = self.trainer_request(group.gpus).world_size
        return not self.choices(group) or min_state_bytes(self.facts, group.family, world) > self._capacity

    def ranked(self, choices: list[Choice]) -> list[Choice]:
        """The choices, fastest first; among choices of about equal speed, the simplest first."""
        order = {group: number for number, group in enumerate(self.groups())}
        left = sorted(choices, key=lambda choice: -choice.tokens_per_second)
        found: list[Choice] = []
        while left:
            slowest = left[0].tokens_per_second * (1 - SPEED_TOLERANCE)
            alike = [choice for choice in left if choice.tokens_per_second >= slowest]
            found += sorted(alike, key=lambda choice: order[strategy_group(choice.strategy)])
            left = left[len(alike) :]
        return found

    def _calibration(self) -> Calibration:
        """Measurements of some strategies that are valid for the others as well."""
        seconds: dict[bool, float] = {}
        activations: dict[bool, float] = {}
        for group, (at, peak) in self._peaks.items():
            checkpointing = group.checkpointing
            computing = peak.forward.seconds + peak.backward.seconds + peak.score.seconds
            seconds.setdefault(checkpointing, computing / at.micro_batch * at.family.sample_ranks)
            of_sample = peak.sample_bytes / at.micro_batch * at.family.sample_ranks
            activations[checkpointing] = max(of_sample, activations.get(checkpointing, 0.0))
        if len(seconds) == 1:
            (checkpointing, taken), *_ = seconds.items()
            seconds[not checkpointing] = taken / _RECOMPUTE_FACTOR if checkpointing else taken * _RECOMPUTE_FACTOR
        return Calibration(seconds, activations)

    # -- measuring ---------------------------------------------------------------------------------------------------

    def rehearse_short(self, choices: list[Choice]) -> None:
        """Measure the group of each choice at its micro-batch, at two depths."""
        strategies = [choice.strategy for choice in choices]
        cells = [cell for strategy in strategies for cell in self.short_measurements(strategy)]
        answers = iter(self.meter.measure(cells))
        for strategy in strategies:
            peak = self.extrapolated_peak(strategy, [next(answers) for _ in self.short_measurements(strategy)])
            if peak is not None:
                self._peaks[strategy_group(strategy)] = (strategy, peak)
        self._choices.clear()

    def short_measurements(self, strategy: Strategy) -> list[Measurement]:
        """What to rehearse for an estimate of the full depth: two depths, or the model itself if it is shallow."""
        at = measurement_depths(self.meter.config, self._min_depth(strategy.family))
        return [self.measurement_of(strategy, depth) for depth in (at or (0,))]

    def extrapolated_peak(self, strategy: Strategy, answers: Sequence[Measured | NotMeasured]) -> Peak | None:
        """The full depth's peak, extrapolated from :meth:`short_measurements`; None if an answer is missing."""
        peaks = [self._measured_peak(strategy, answer) for answer in answers]
        known = [peak for peak in peaks if peak is not None]
        if len(known) < len(peaks):
            return None
        at = measurement_depths(self.meter.config, self._min_depth(strategy.family))
        plain = self.request.task is None  # TRL scores whole batches before training, and frees their logits
        return extrapolate(known[0], known[1], at, self.facts.depth, unused_scales_with_depth=plain) if at else known[0]

    def rehearse_full_depth(self, strategy: Strategy) -> Choice | None:
        """Rehearse a strategy at full depth, on an accelerator reduced by the uncertainty of the figures."""
        (answer,) = self.meter.measure([self.measurement_of(strategy, 0, real=True)])
        peak = self._measured_peak(strategy, answer)
        if peak is None:
            return None
        asked = self.trainer_request(strategy.rollout.gpus)
        self._choices.clear()
        self._whole[strategy] = estimate_from_peak(asked, self.facts, strategy, strategy, peak, "rehearsed")
        self._peaks[strategy_group(strategy)] = strategy, peak  # it also improves the estimates of other micro-batches
        return self._whole[strategy]

    def measurement_of(self, strategy: Strategy, depth: int, *, real: bool = False) -> Measurement:
        """What to rehearse of a strategy. Two micro-batches per step are enough: later ones are like the second."""
        request = self.trainer_request(strategy.rollout.gpus)
        measured = replace(strategy, accumulation=batches.measured_accumulation(request, strategy))
        if not real:  # the engine's memory is calculated, so any layout will do
            measured = replace(measured, rollout=replace(strategy.rollout, tp=1, share=0.0, sleep=False))
        return Measurement(measured, depth, request.seq_len, request.world_size, real=real)

    def _min_depth(self, family: Family) -> int:
        """Under ZeRO-3, enough layers to reach the limit of parameters that stay gathered."""
        if family.zero < 3 or family.fsdp or not self.facts.layer_parameters:
            return _MIN_DEPTH
        return max(_MIN_DEPTH, family.live_parameters // (2 * self.facts.layer_parameters) + 2)

    def _measured_peak(self, strategy: Strategy, answer: Measured | NotMeasured) -> Peak | None:
        group = strategy_group(strategy)
        if isinstance(answer, NotMeasured):
            self.failed[group] = str(answer)
            return None
        if answer.record.outcome not in ("completed", "out-of-memory"):
            failure, error = answer.record.failure, answer.record.user_error
            self.failed[group] = (
                error[0] if error else failure.message if failure is not None else answer.record.outcome
            )
            return None
        return measured_peak(
            answer, batches.measured_accumulation(self.trainer_request(strategy.rollout.gpus), strategy)
        )


def strategy_group(strategy: Strategy) -> StrategyGroup:
    """The group that a strategy belongs to."""
    rollout = strategy.rollout
    return StrategyGroup(strategy.family, strategy.checkpointing, strategy.reference, rollout.engine, rollout.gpus)


def _has_module(package: str, name: str) -> bool:
    """Whether an installed package has a module of that name, found without importing it."""
    spec = importlib.util.find_spec(package)
    return spec is not None and spec.origin is not None and Path(spec.origin).with_name(f"{name}.py").exists()


def _with_default_buckets(group: StrategyGroup) -> StrategyGroup:
    """The same group with DeepSpeed's default bucket sizes."""
    return group._replace(family=replace(group.family, small_buckets=False))


def _fastest_choice(choices: list[Choice]) -> Choice | None:
    """The fastest choice; among choices of about equal speed, one that was rehearsed at full depth."""
    most = max((choice.tokens_per_second for choice in choices), default=0.0)
    alike = [choice for choice in choices if choice.tokens_per_second >= most * (1 - SPEED_TOLERANCE)]
    return max(alike, key=lambda choice: (choice.source == "rehearsed", choice.tokens_per_second), default=None)
