"""Finds the limit of what fits: longest sequence, largest micro-batch, or fewest GPUs, for each sharding strategy.

Memory is linear in the tokens of a micro-batch, and in 1/n for n GPUs over which states are partitioned. So it is
measured at two values, each at two depths; the best answer is rehearsed at full depth and pushed further.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Literal

import msgspec
from msgspec.structs import replace

from gonogo.finding import Text, UserError, translated
from gonogo.trials.plan.candidates import Candidates, StrategyGroup, strategy_group
from gonogo.trials.plan.choice import Choice, estimate_by_formula, estimate_from_peak, usable_gpu_memory
from gonogo.trials.plan.closed_form import NO_CALIBRATION
from gonogo.trials.plan.extrapolation import Peak, extrapolate
from gonogo.trials.plan.measure import Meter
from gonogo.trials.plan.request import PlanRequest
from gonogo.trials.plan.sizing import engine_layouts
from gonogo.trials.plan.sizing.batches import generations, global_batch, min_micro_batch
from gonogo.trials.plan.strategy import Strategy
from gonogo.virtual.measuring.depth import max_positions
from gonogo.virtual.measuring.jobs import ModelFacts

Unknown = Literal["micro-batch", "seq-len", "gpus", "generations"]
UNKNOWNS: tuple[Unknown, ...] = ("micro-batch", "seq-len", "gpus", "generations")
ReportProgress = Callable[[Text], None]

_MAX_SAMPLES = 256
_MAX_NODES = 64
_MAX_GENERATIONS = 512
_MAX_FULL_REHEARSALS = 4
"""At most this many rehearsals at full depth for the best answer."""
_MAX_REHEARSED_STRATEGIES = 3
"""At most this many strategies are rehearsed at full depth, if one reaches less there than another is expected to."""
_SEARCH_TOLERANCE_DIVISOR = 16
"""The search stops when the answer is known to 1 part in this many."""


class Solution(msgspec.Struct, frozen=True):
    """The answer for one sharding strategy."""

    value: int
    choice: Choice
    request: PlanRequest
    """The original request with the value filled in."""
    at_limit: bool
    """Whether the value can't get harder: the model has no more positions, or a single GPU remains."""


class SolveResult(msgspec.Struct, frozen=True):
    """All answers, the best first."""

    unknown: Unknown
    request: PlanRequest
    facts: ModelFacts
    solutions: tuple[Solution, ...]
    too_large: tuple[Choice, ...]
    """Choices that do not fit even at the easiest value."""
    failed: tuple[tuple[Choice, str], ...]
    seconds: float
    rehearsed: int
    reused: int


def check_unknown(name: str, request: PlanRequest) -> Unknown:
    """The unknown of that name. Raises UserError if there is none, or if the task does not have it."""
    if name == "generations" and (request.task is None or not request.task.kind.rolls_out):
        raise UserError(
            translated("--solve generations: only --task grpo and rloo generate several completions of a prompt")
        )
    if name == "gpus" and request.task is not None and request.task.engine == "server":
        raise UserError(
            translated(
                "--solve gpus with --engine server: the number of server GPUs is your choice; use --engine colocate"
            )
        )
    for known in UNKNOWNS:
        if known == name:
            return known
    raise UserError(translated("--solve {name}: must be one of {known}").format(name=name, known=", ".join(UNKNOWNS)))


def solve(unknown: Unknown, request: PlanRequest, meter: Meter, report_progress: ReportProgress) -> SolveResult:
    """The answers for each sharding strategy. Raises NotMeasured if the model itself can't be built."""
    started = time.monotonic()
    report_progress(translated("reading the model"))
    found = _Solver(unknown, request, meter)
    report_progress(translated("rehearsing with few layers"))
    found.measure()
    solutions = found.solutions()
    if solutions:
        report_progress(translated("rehearsing the best at full depth"))
        for _ in range(_MAX_REHEARSED_STRATEGIES):
            solutions = found.rehearse_best(solutions)
            if solutions[0].choice.source == "rehearsed":
                break
    return SolveResult(
        unknown=unknown,
        request=request,
        facts=found.facts,
        solutions=tuple(solutions),
        too_large=tuple(found.too_large),
        failed=tuple(found.failed),
        seconds=time.monotonic() - started,
        rehearsed=meter.rehearsed,
        reused=meter.reused,
    )


class _Solver:
    """Finds the hardest value of the unknown that fits, for each sharding strategy."""

    def __init__(self, unknown: Unknown, request: PlanRequest, meter: Meter) -> None:
        self.unknown = unknown
        self.request = request
        self.meter = meter
        self.facts = meter.facts()
        self.values = self._values_to_try()
        """From the easiest to the hardest."""
        self.groups = [group for group in self._candidates_at(self.values[0]).groups() if self._is_in_scope(group)]
        if request.task is not None and request.task.engine == "server":
            fewest = min((group.gpus for group in self.groups), default=0)
            self.groups = [group for group in self.groups if group.gpus == fewest]
        self.too_large: list[Choice] = []
        self.failed: list[tuple[Choice, str]] = []
        self._rehearsed: set[StrategyGroup] = set()
        """Those rehearsed at full depth."""
        self._lines: dict[StrategyGroup, tuple[tuple[int, Peak], tuple[int, Peak]]] = {}

    def _values_to_try(self) -> Sequence[int]:
        if self.unknown == "micro-batch":
            return range(1, _MAX_SAMPLES + 1)
        if self.unknown == "seq-len":
            most, task = max_positions(self.meter.config), self.request.task
            steps = [*range(256, min(most, 16384), 256), *range(16384, most, 1024), most]
            prompt = 0 if task is None else task.prompt_len
            return sorted({min(step, most) for step in steps if step > prompt}) or [most]
        if self.unknown == "generations":
            world = self.request.world_size
            return [count for count in range(2, _MAX_GENERATIONS + 1) if self._prompts_per_step() * count % world == 0]
        count = self.request.machine.count
        of_node = {1 << power for power in range(count.bit_length()) if 1 << power <= count} | {count}
        worlds = of_node | {count << power for power in range(_MAX_NODES.bit_length())}
        return sorted(worlds, reverse=True)

    def _prompts_per_step(self) -> int:
        """Prompts per step, which stay constant as the number of completions varies."""
        return max(global_batch(self.request) // generations(self.request), 1)

    def _is_in_scope(self, group: StrategyGroup) -> bool:
        """Only with checkpointing when memory is the limit; with a given length, also without it."""
        family = group.family
        requested = self.request.task
        if group.engine == "server" and (
            requested is None or requested.engine != "server" or self.unknown == "generations"
        ):
            return False  # a server's GPU count is chosen, and its memory isn't the trainer's
        if family.is_native:
            return False  # its sizes are those of a given machine
        if (family.context > 1 and self.unknown != "seq-len") or (family.replicas > 1 and self.unknown == "gpus"):
            return False
        return not family.small_buckets and (
            group.checkpointing or (self.unknown == "micro-batch" and family.optimizer == "gpu")
        )

    def _candidates_at(self, value: int) -> Candidates:
        return Candidates(self._request_with(value), self.facts, self.meter)

    def _request_with(self, value: int) -> PlanRequest:
        if self.unknown == "seq-len":
            task = self.request.task
            longer = task and replace(task, completion_len=max(value - task.prompt_len, 1))
            return replace(self.request, seq_len=value, task=longer)
        if self.unknown == "micro-batch":
            return self.request
        if self.unknown == "generations":
            assert self.request.task is not None
            several = replace(self.request.task, generations=value)
            return replace(self.request, global_batch=self._prompts_per_step() * value, task=several)
        machine = self.request.machine
        count = min(value, machine.count)
        return replace(self.request, machine=replace(machine, count=count, nodes=-(-value // count)), global_batch=None)

    def _strategy(self, group: StrategyGroup, value: int) -> Strategy:
        """The strategy at a value, always with accumulation: otherwise the gradient sum would break the linearity."""
        requested = self._request_with(value).without_server_gpus(group.gpus)
        least = min_micro_batch(requested)
        micro_batch = max(value, least) if self.unknown == "micro-batch" else least
        found = self._candidates_at(value).strategy(group, micro_batch)
        found = replace(found, accumulation=max(found.accumulation, 2))
        samples = micro_batch * found.accumulation
        rollout = engine_layouts.smallest_rollout(
            self._request_with(value), self.facts, group.engine, group.gpus, samples
        )
        if self.unknown == "generations":
            rollout = engine_layouts.smallest_engine_for_step(requested, self.facts, samples) or rollout
        return replace(found, rollout=rollout)

    def _fits(self, choice: Choice, value: int) -> bool:
        """Whether it fits; for generations, also whether the engine can hold all of a GPU's completions at once."""
        if self.unknown != "generations":
            return choice.room.fits
        strategy = choice.strategy
        held = engine_layouts.smallest_engine_for_step(
            self._request_with(value), self.facts, strategy.micro_batch * strategy.accumulation
        )
        return choice.room.fits and held is not None

    def _linear_coordinate(self, value: int) -> float:
        """The quantity that is varied, in which memory is linear."""
        return 1 / value if self.unknown == "gpus" else float(value)

    # -- measuring ---------------------------------------------------------------------------------------------------

    def measure(self) -> None:
        """Measure every group at two values, all in parallel."""
        requested = [(group, value) for group in self.groups for value in self._values_to_measure(group)]
        cells = [
            self._candidates_at(value).short_measurements(self._strategy(group, value)) for group, value in requested
        ]
        answers = iter(self.meter.measure([cell for some in cells for cell in some]))
        peaks: dict[StrategyGroup, list[tuple[int, Peak]]] = {}
        for (group, value), some in zip(requested, cells, strict=True):
            candidates = self._candidates_at(value)
            peak = candidates.extrapolated_peak(self._strategy(group, value), [next(answers) for _ in some])
            if peak is not None:
                peaks.setdefault(group, []).append((value, peak))
            elif not any(choice.strategy.family == group[0] for choice, _ in self.failed):
                why = next(iter(candidates.failed.values()))
                self.failed.append((self._formula_choice(group, value), why))
        self._lines = {group: (some[0], some[1]) for group, some in peaks.items() if len(some) == 2}

    def _values_to_measure(self, group: StrategyGroup) -> tuple[int, int]:
        """About the hardest value that fits by formula, and an easier one. Equal if there is only one value."""
        fitting = [number for number, value in enumerate(self.values) if self._formula_choice(group, value).room.fits]
        guess = max(fitting, default=0)
        hard = max(guess, min(1, len(self.values) - 1))
        if self.unknown == "generations":  # only the engine's cache grows with them
            return self.values[0], self.values[0]
        return self.values[hard // 2 if hard > 1 else 0], self.values[hard]

    def _formula_choice(self, group: StrategyGroup, value: int) -> Choice:
        requested = self._request_with(value).without_server_gpus(group.gpus)
        return estimate_by_formula(requested, self.facts, self._strategy(group, value), NO_CALIBRATION)

    def _estimate(self, group: StrategyGroup, value: int) -> Choice:
        """Interpolate between the measurements."""
        (first, at_first), (second, at_second) = self._lines[group]
        if first == second:
            strategy, requested = (
                self._strategy(group, value),
                self._request_with(value).without_server_gpus(group.gpus),
            )
            return estimate_from_peak(requested, self.facts, strategy, strategy, at_first, "extended")
        coordinates = self._linear_coordinate(first), self._linear_coordinate(second)
        peak = extrapolate(at_first, at_second, coordinates, self._linear_coordinate(value), same_batch=False)
        strategy, requested = self._strategy(group, value), self._request_with(value).without_server_gpus(group.gpus)
        return estimate_from_peak(requested, self.facts, strategy, strategy, peak, "extended")

    # -- answering ---------------------------------------------------------------------------------------------------

    def solutions(self) -> list[Solution]:
        """The hardest value of each group that is certain to fit, best first."""
        found = []
        for group in self._lines:
            value = self._largest_fitting_value(group, self._fits)
            if value is None:
                self.too_large.append(self._estimate(group, self.values[0]))
            else:
                found.append(self._to_solution(value, self._estimate(group, value)))
        return sorted(filter(lambda one: not self._splits_in_vain(one, found), found), key=self._ranking_key)

    def _splits_in_vain(self, solution: Solution, solutions: Sequence[Solution]) -> bool:
        """Whether as long a sequence fits on fewer GPUs of those that share it, which communicate less."""
        family = solution.choice.strategy.family
        return any(
            replace(family, context=1) == replace(other.choice.strategy.family, context=1)
            and other.choice.strategy.family.context < family.context
            and self.values.index(other.value) >= self.values.index(solution.value)
            for other in solutions
        )

    def _ranking_key(self, solution: Solution) -> tuple[int, float]:
        return -self.values.index(solution.value), -solution.choice.tokens_per_second

    def _largest_fitting_value(self, group: StrategyGroup, fits: Callable[[Choice, int], bool]) -> int | None:
        low, high = -1, len(self.values)
        while high - low > 1:
            middle = (low + high) // 2
            value = self.values[middle]
            low, high = (middle, high) if fits(self._estimate(group, value), value) else (low, middle)
        return self.values[low] if low >= 0 else None

    def _to_solution(self, value: int, choice: Choice) -> Solution:
        return Solution(value, choice, self._request_with(value), value == self.values[-1])

    def _best_possible_index(self, solution: Solution) -> int:
        """The index of the hardest value that a strategy may reach."""
        capacity = usable_gpu_memory(solution.request)
        if self.unknown == "generations":
            return self.values.index(solution.value)
        value = self._largest_fitting_value(
            strategy_group(solution.choice.strategy), lambda choice, _: choice.may_fit(capacity)
        )
        return max(self.values.index(solution.value), self.values.index(value) if value is not None else 0)

    def rehearse_best(self, solutions: list[Solution]) -> list[Solution]:
        """Rehearse the best answer at full depth: its hardest value that may fit, else smaller ones by bisection."""
        left = [one for one in solutions if strategy_group(one.choice.strategy) not in self._rehearsed]
        if not left:
            return solutions
        hopes = [self._best_possible_index(solution) for solution in left]
        best = left[hopes.index(max(hopes))]
        self._rehearsed.add(strategy_group(best.choice.strategy))
        rest = [solution for solution in solutions if solution is not best]
        group = strategy_group(best.choice.strategy)
        low, high = self.values.index(best.value), max(hopes) + 1
        shown: Solution | None = None
        trial = high - 1
        for _ in range(_MAX_FULL_REHEARSALS):
            value = self.values[trial]
            candidates = self._candidates_at(value)
            choice = candidates.rehearse_full_depth(self._strategy(group, value))
            if choice is None:
                self.failed.append((best.choice, candidates.failed[group]))
                break
            if self._fits(choice, value):
                shown, low = self._to_solution(value, choice), trial
                if high - low <= max(low // _SEARCH_TOLERANCE_DIVISOR, 1):
                    break
            else:
                high = trial
                low = low if low < high else high - max(high // _SEARCH_TOLERANCE_DIVISOR, 1)
                if low < 0:
                    break
            trial = (low + high) // 2
        return sorted([shown or best, *rest], key=self._ranking_key)
