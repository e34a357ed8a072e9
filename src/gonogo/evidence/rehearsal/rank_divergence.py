"""Where the ranks of a rehearsal diverge: which ranks are where, and which condition led them there."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

from gonogo.evidence.library import is_library_path
from gonogo.evidence.patterns import Pattern
from gonogo.evidence.rehearsal.failures import is_generated_data, is_python_value, line_of_assumption, nested_value
from gonogo.evidence.rehearsal.influence import Influence, ProgramLine
from gonogo.evidence.rehearsal.record import Assumption, RehearsalRecord
from gonogo.finding import Certainty
from gonogo.finding.divergence import (
    ENGINE_CONSTRUCTION,
    ENGINE_GENERATION,
    CollectiveCall,
    Divergence,
    EnclosingCondition,
    LoopExit,
    Side,
)

_RANK_PATTERN = Pattern(r"(?i)rank|is_(?:local_)?main|process_zero|process_index|is_master|global_zero")


class RankDivergence:
    """The divergence of a record, as facts; each hazard decides which divergences are its own."""

    def __init__(self, record: RehearsalRecord, divergence: Divergence) -> None:
        self.record = record
        self.divergence = divergence
        self.sides = divergence.earlier or divergence.sides
        """Where they diverge in the program: earlier than where they stop, if calls of different lines were matched."""

    @property
    def ranks(self) -> tuple[int, ...]:
        """All ranks that the divergence ended."""
        named = {rank for side in self.divergence.sides for rank in side.ranks}
        return tuple(sorted(named | {rank.rank for rank in self.record.ranks if rank.outcome == "diverged"}))

    @cached_property
    def zero_stage(self) -> object:
        """The ZeRO stage, or None."""
        configs = (rank.deepspeed_config for rank in self.record.ranks)
        return next(
            (stage for c in configs if (stage := nested_value(c, "zero_optimization", "stage")) is not None), None
        )

    @property
    def sides_in_calls(self) -> list[tuple[Side, CollectiveCall]]:
        """The sides that are in a call, with that call."""
        return [(side, side.call) for side in self.sides if side.call is not None]

    @cached_property
    def gathers_weights(self) -> bool:
        """Whether a side gathers weights that ZeRO-3 has partitioned."""
        return any(call.parameters and "gather" in call.operator for _, call in self.sides_in_calls)

    @cached_property
    def engine_sides(self) -> tuple[Side, ...]:
        """The sides at which a colocated rollout engine waits for its other ranks."""
        return tuple(
            side for side, call in self.sides_in_calls if call.operator in (ENGINE_CONSTRUCTION, ENGINE_GENERATION)
        )

    def conditions_of_side_alone(self, side: Side) -> list[EnclosingCondition]:
        """The conditions around a side's call that aren't around any other side's, innermost first."""
        others = {(g.path, g.line, g.kind) for other in self.sides if other is not side for g in other.guards}
        return [
            guard
            for guard in reversed(side.guards)
            if guard.kind in ("if", "else") and (guard.path, guard.line, guard.kind) not in others
        ]

    @cached_property
    def rank_condition(self) -> tuple[Side, EnclosingCondition] | None:
        """The side whose call depends on a condition on the rank, and that condition."""
        for side, _ in self.sides_in_calls:
            for guard in self.conditions_of_side_alone(side):
                if depends_on_rank(guard.texts):
                    return side, guard
        return None

    @cached_property
    def rank_loop_exit(self) -> LoopExit | None:
        """The condition on the rank by which ranks have left a loop that others are still in."""
        if self.rank_condition is not None or self.left_loop is None:
            return None
        inside, outside, loop = self.left_loop
        if 1 not in (len(inside.ranks), len(outside.ranks)):
            return None
        return next((one for one in loop.exits if depends_on_rank(one.texts)), None)

    @cached_property
    def left_loop(self) -> tuple[Side, Side, EnclosingCondition] | None:
        """A loop of the program (not in a ``forward``) around one side's call that another side has left."""
        for side, call in self.sides_in_calls:
            for guard in side.guards:
                if guard.kind in ("if", "else") or guard.function == "forward":
                    continue
                for other in self.sides:
                    if other is not side and _has_left_loop(other, guard, call):
                        return side, other, guard
        return None

    @property
    def batches_differ(self) -> bool:
        """Whether a side's last batch has tensors that another's lacks."""
        return len({frozenset(name for name, _ in side.batch) for side in self.sides}) > 1

    @property
    def lengths_decide(self) -> bool:
        """Whether the sides' tensors differ in size, and their samples in length too."""
        if self.divergence.kind != "other-size" or len({call.sizes for _, call in self.sides_in_calls}) < 2:
            return False
        seen = {
            rank.rank: rank.as_run.tokens
            for rank in self.record.ranks
            if rank.as_run is not None and rank.as_run.tokens
        }
        lengths = {seen[rank] for side in self.sides for rank in side.ranks if rank in seen}
        return len(lengths) > 1 or len({side.batch for side in self.sides if side.batch}) > 1

    def most_informative_side(self, *marked: Side) -> Side:
        """The side whose call explains the divergence best.

        In order: one behind a condition on the rank; the only one in ``marked``; one with a condition of its own;
        else the last one.
        """
        if self.rank_condition is not None:
            return self.rank_condition[0]
        if len(marked) == 1:
            return marked[0]
        sides = [side for side, _ in self.sides_in_calls] or list(self.sides)
        return next((side for side in sides if self.conditions_of_side_alone(side)), sides[-1])

    @cached_property
    def assumption_behind(self) -> Assumption | None:
        """An assumption that may have caused the ranks to diverge, or None.

        It was made in a condition on the path to the calls; or its value decides, by data flow through names, such a
        condition or whether a side continues its loop; or the sizes that differ are lengths of generated rows. If
        ranks diverge at a condition on the rank, everything before it is the same for all, and only a value in the
        condition itself counts.
        """
        guards = {f"{guard.path}:{guard.line}" for side in self.sides for guard in side.guards}
        made = [assumption for rank in self.record.ranks for assumption in rank.assumptions]
        rows = next((one for one in made if is_generated_data(one)), None)
        if rows is not None and self.lengths_decide:
            return rows
        direct = next((assumption for assumption in made if assumption.where in guards), None)
        return direct or next(
            (one for one in dict.fromkeys(made) if is_python_value(one) and self._decides_calls(one)), None
        )

    def _decides_calls(self, assumption: Assumption) -> bool:
        """Whether an assumed value decides which of the diverging calls is made."""
        start = line_of_assumption(assumption)
        if start is None or is_library_path(start.path):
            return False
        frames = [
            ProgramLine(frame.path, frame.line)
            for _, call in self.sides_in_calls
            for frame in call.frames
            if frame.owner == "user"
        ]
        influence = Influence(start, [place.path for place in frames], rounds=True)
        if self.rank_condition is not None:
            _, guard = self.rank_condition
            return influence.reads_affected_value(ProgramLine(guard.path, guard.line))
        return any(influence.decides(place) for place in frames)

    @property
    def certainty(self) -> Certainty:
        """CERTAIN, unless a condition on the path depends on a value that a rehearsal can't know."""
        return Certainty.LIKELY if self.assumption_behind is not None else Certainty.CERTAIN


def depends_on_rank(texts: Iterable[str]) -> bool:
    """Whether a condition, or what its names were computed from, depends on the rank."""
    return any(_RANK_PATTERN.search(text) for text in texts)


def rank_divergence(record: RehearsalRecord) -> RankDivergence | None:
    """Where the ranks of a record diverge, or None if they don't."""
    return RankDivergence(record, record.divergence) if record.divergence is not None else None


def names_in_call(side: Side) -> str:
    """The module that runs a side's call, and the parameters that it gathers or reduces."""
    return " ".join([side.call.module or "", *side.call.parameters]) if side.call is not None else ""


def _has_left_loop(side: Side, loop: EnclosingCondition, other_call: CollectiveCall) -> bool:
    """Whether a side has ended, or is in a call after the loop in the same function."""
    if side.call is None:
        return True
    own = [frame for frame in side.call.frames if frame.path == loop.path and frame.function == loop.function]
    inner = [f.line for f in other_call.frames if f.path == loop.path and f.function == loop.function]
    last = max(inner, default=loop.line)
    within = any((guard.path, guard.line) == (loop.path, loop.line) for guard in side.guards)
    return bool(own) and not within and own[0].line > last
