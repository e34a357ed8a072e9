"""Where the ranks of a rehearsal diverge: which of them stands where, and by which condition it came there."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

from gonogo.evidence.library import is_library
from gonogo.evidence.patterns import Pattern
from gonogo.evidence.rehearsal.failures import is_python_value, place_of, setting
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
    """The divergence of a record, as facts; a hazard says which of them are its own."""

    def __init__(self, record: RehearsalRecord, divergence: Divergence) -> None:
        self.record = record
        self.divergence = divergence
        self.sides = divergence.earlier or divergence.sides
        """Where they diverge in the program: earlier than where they stop, if calls of different lines were matched."""

    @property
    def ranks(self) -> tuple[int, ...]:
        """Every rank that this ended."""
        named = {rank for side in self.divergence.sides for rank in side.ranks}
        return tuple(sorted(named | {rank.rank for rank in self.record.ranks if rank.outcome == "diverged"}))

    @cached_property
    def zero_stage(self) -> object:
        """ZeRO's stage, or None."""
        configs = (rank.deepspeed_config for rank in self.record.ranks)
        return next((stage for c in configs if (stage := setting(c, "zero_optimization", "stage")) is not None), None)

    @property
    def calls(self) -> list[tuple[Side, CollectiveCall]]:
        """The sides that call something."""
        return [(side, side.call) for side in self.sides if side.call is not None]

    @cached_property
    def gathers(self) -> bool:
        """Whether a side gathers weights that ZeRO-3 has partitioned."""
        return any(call.parameters and "gather" in call.operator for _, call in self.calls)

    @cached_property
    def of_engine(self) -> tuple[Side, ...]:
        """The sides at which a rollout engine in the trainers' processes waits for its other ranks."""
        return tuple(side for side, call in self.calls if call.operator in (ENGINE_CONSTRUCTION, ENGINE_GENERATION))

    def own_guards(self, side: Side) -> list[EnclosingCondition]:
        """The conditions that a side's call stands in and no other side's does, innermost first."""
        others = {(g.path, g.line, g.kind) for other in self.sides if other is not side for g in other.guards}
        return [
            guard
            for guard in reversed(side.guards)
            if guard.kind in ("if", "else") and (guard.path, guard.line, guard.kind) not in others
        ]

    @cached_property
    def rank_test(self) -> tuple[Side, EnclosingCondition] | None:
        """The side that comes to its call by a condition on the rank, and that condition."""
        for side, _ in self.calls:
            for guard in self.own_guards(side):
                if asks_for_rank(guard.texts):
                    return side, guard
        return None

    @cached_property
    def rank_exit(self) -> LoopExit | None:
        """The condition on the rank by which one rank has left a loop that the others are in, or is alone in."""
        if self.rank_test is not None or self.left_loop is None:
            return None
        inside, outside, loop = self.left_loop
        if 1 not in (len(inside.ranks), len(outside.ranks)):
            return None
        return next((one for one in loop.exits if asks_for_rank(one.texts)), None)

    @cached_property
    def left_loop(self) -> tuple[Side, Side, EnclosingCondition] | None:
        """A loop of the program (no module's) that one side's call stands in and another side has left behind."""
        for side, call in self.calls:
            for guard in side.guards:
                if guard.kind in ("if", "else") or guard.function == "forward":
                    continue
                for other in self.sides:
                    if other is not side and _has_left_loop(other, guard, call):
                        return side, other, guard
        return None

    @property
    def batches_differ(self) -> bool:
        """Whether one side's last batch has tensors that another's has not."""
        return len({frozenset(name for name, _ in side.batch) for side in self.sides}) > 1

    def most_informative_side(self, *marked: Side) -> Side:
        """The side whose call tells most.

        One behind a test of the rank; the only one of those given; one in a condition of its own; that of fewest ranks.
        """
        if self.rank_test is not None:
            return self.rank_test[0]
        if len(marked) == 1:
            return marked[0]
        sides = [side for side, _ in self.calls] or list(self.sides)
        return next((side for side in sides if self.own_guards(side)), sides[-1])

    @cached_property
    def assumed(self) -> Assumption | None:
        """An assumption because of which ranks may have come to where they diverge; None: there is none.

        Made in a condition on the way; or one whose value, by the names that it passes through, decides such a
        condition, or whether a side goes on in its loop. Where ranks part at a test of the rank, what came before it is
        the same for all, and only a value in the test itself counts.
        """
        guards = {f"{guard.path}:{guard.line}" for side in self.sides for guard in side.guards}
        made = [assumption for rank in self.record.ranks for assumption in rank.assumptions]
        direct = next((assumption for assumption in made if assumption.where in guards), None)
        return direct or next((one for one in dict.fromkeys(made) if is_python_value(one) and self._decides(one)), None)

    def _decides(self, assumption: Assumption) -> bool:
        start = place_of(assumption)
        if start is None or is_library(start.path):
            return False
        frames = [
            ProgramLine(frame.path, frame.line)
            for _, call in self.calls
            for frame in call.frames
            if frame.owner == "user"
        ]
        influence = Influence(start, [place.path for place in frames], rounds=True)
        if self.rank_test is not None:
            _, guard = self.rank_test
            return influence.uses(ProgramLine(guard.path, guard.line))
        return any(influence.decides(place) for place in frames)

    @property
    def certainty(self) -> Certainty:
        """Certain, but where a condition on the way hung on a value that a rehearsal cannot know."""
        return Certainty.LIKELY if self.assumed is not None else Certainty.CERTAIN


def asks_for_rank(texts: Iterable[str]) -> bool:
    """Whether a condition, or what its names were computed from, asks for the rank."""
    return any(_RANK_PATTERN.search(text) for text in texts)


def rank_divergence(record: RehearsalRecord) -> RankDivergence | None:
    """Where the ranks of a record diverge, or None where they do not."""
    return RankDivergence(record, record.divergence) if record.divergence is not None else None


def names_in_call(side: Side) -> str:
    """The module that runs a side's call, and the parameters that it gathers or reduces."""
    return " ".join([side.call.module or "", *side.call.parameters]) if side.call is not None else ""


def _has_left_loop(side: Side, loop: EnclosingCondition, other_call: CollectiveCall) -> bool:
    """Whether a side has ended, or calls something below the loop in the function that holds it."""
    if side.call is None:
        return True
    own = [frame for frame in side.call.frames if frame.path == loop.path and frame.function == loop.function]
    inner = [f.line for f in other_call.frames if f.path == loop.path and f.function == loop.function]
    last = max(inner, default=loop.line)
    within = any((guard.path, guard.line) == (loop.path, loop.line) for guard in side.guards)
    return bool(own) and not within and own[0].line > last
