"""Where the ranks of a rehearsal parted: who did what, and which hazard it is.

One hazard alone speaks of a divergence: the one that :attr:`Parting.cause` names.
"""

from __future__ import annotations

from functools import cached_property

from gonogo.evidence.patterns import Pattern
from gonogo.evidence.rehearsal.divergence import Call, Divergence, Guard, Side
from gonogo.evidence.rehearsal.failures import setting
from gonogo.evidence.rehearsal.frame import Frame
from gonogo.evidence.rehearsal.record import RehearsalRecord
from gonogo.finding import Certainty
from gonogo.hazards.facts.stall_causes import EXPERTS, GENERATE, MODALITIES, UNEVEN

GENERAL = "ranks-part-at-collective"
SIZES = "collective-sizes-differ"
IN_BRANCH = "collective-in-branch-of-one-rank"
CHECKPOINT = "ds-checkpoint-saved-on-one-rank"
WEIGHTS = "zero3-weights-gathered-on-one-rank"
MODEL = "zero3-model-run-on-one-rank"
TRAINER = "trainer-evaluates-on-one-rank"

_ASKS_FOR_RANK = Pattern(r"(?i)rank|is_(?:local_)?main|process_zero|process_index|is_master|global_zero")
_EXPERT = Pattern(r"(?i)expert|\bmoe\b")
_TOWER = Pattern(
    r"(?i)vision|visual|image|pixel|picture|video|audio|speech|whisper|tower|projector|resampler|\bvit\b|multi_modal"
)
_GENERATES = frozenset({"generate", "_sample", "_beam_search", "_greedy_search"})
_SAVES_WEIGHTS = frozenset(
    {"save_16bit_model", "save_fp16_model", "_zero3_consolidated_16bit_state_dict", "save_pretrained", "save_model"}
)
_EVALUATES = frozenset({"evaluate", "predict", "evaluation_loop", "prediction_loop"})


class Parting:
    """The divergence of a record: its facts, and which hazard it is."""

    def __init__(self, record: RehearsalRecord, divergence: Divergence) -> None:
        self.record = record
        self.divergence = divergence
        self.sides = divergence.apart or divergence.sides
        """Where they part in the program: earlier than where they stop, if calls of different lines were matched."""

    # -- facts -------------------------------------------------------------------------------------------------------

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
    def calls(self) -> list[tuple[Side, Call]]:
        """The sides that call something."""
        return [(side, side.call) for side in self.sides if side.call is not None]

    @cached_property
    def gathers(self) -> bool:
        """Whether a side gathers weights that ZeRO-3 has divided."""
        return any(call.parameters and "gather" in call.operator for _, call in self.calls)

    def own_guards(self, side: Side) -> list[Guard]:
        """The conditions that a side's call stands in and no other side's does, innermost first."""
        others = {(g.path, g.line, g.kind) for other in self.sides if other is not side for g in other.guards}
        return [
            guard
            for guard in reversed(side.guards)
            if guard.kind in ("if", "else") and (guard.path, guard.line, guard.kind) not in others
        ]

    @cached_property
    def alone(self) -> tuple[Side, Guard] | None:
        """The side that comes to its call by a condition on the rank, and that condition."""
        for side, _ in self.calls:
            for guard in self.own_guards(side):
                if _ASKS_FOR_RANK.search(guard.text):
                    return side, guard
        return None

    @cached_property
    def left_loop(self) -> tuple[Side, Side, Guard] | None:
        """A loop of the program (no module's) that one side's call stands in and another side has left behind."""
        for side, call in self.calls:
            for guard in side.guards:
                if guard.kind in ("if", "else") or guard.function == "forward":
                    continue
                for other in self.sides:
                    if other is not side and _has_left(other, guard, call):
                        return side, other, guard
        return None

    @cached_property
    def focus(self) -> Side:
        """The side whose call tells most: one in a condition of its own, else that of the fewest ranks."""
        if self.alone is not None:
            return self.alone[0]
        sides = [side for side, _ in self.calls] or list(self.sides)
        generating = [side for side in sides if _GENERATES & set(side.functions)]
        if len(generating) == 1:
            return generating[0]
        for pattern in (_EXPERT, _TOWER):
            marked = [side for side in sides if pattern.search(_named(side))]
            if len(marked) == 1:
                return marked[0]
        return next((side for side in sides if self.own_guards(side)), sides[-1])

    @property
    def certainty(self) -> Certainty:
        """Certain, but where a condition on the way hung on a value that a rehearsal cannot know."""
        assumed = {assumption.where for rank in self.record.ranks for assumption in rank.assumptions}
        guards = {f"{guard.path}:{guard.line}" for side in self.sides for guard in side.guards}
        return Certainty.LIKELY if assumed & guards else Certainty.CERTAIN

    # -- which hazard ------------------------------------------------------------------------------------------------

    @cached_property
    def cause(self) -> str:
        """The name of the hazard that explains it."""
        if self.divergence.parting == "other-size":
            return SIZES
        functions = {name for side in self.sides for name in side.functions}
        if self.zero_stage == 3 and functions & _GENERATES:
            return GENERATE
        if self.alone is not None:
            return self._cause_of_one_rank(self.alone[0], self.alone[1])
        if self.gathers:
            if any(_EXPERT.search(_named(side)) for side in self.sides):
                return EXPERTS
            if self._tower_on_one_side() or self._different_batches():
                return MODALITIES
        return UNEVEN if self._uneven() else GENERAL

    def _cause_of_one_rank(self, side: Side, guard: Guard) -> str:
        functions = set(side.functions)
        if "save_checkpoint" in functions:
            return CHECKPOINT
        if self.zero_stage == 3 and self._gathers_to_read(side):
            return WEIGHTS
        if _EVALUATES & functions and any("transformers" in frame.path for frame in _frames(side)):
            return TRAINER
        call = side.call
        runs_model = call is not None and (call.parameters or call.module)
        if self.zero_stage == 3 and runs_model and not _in_forward(side, guard):
            return MODEL
        return GENERAL if call is not None and call.parameters else IN_BRANCH

    @staticmethod
    def _gathers_to_read(side: Side) -> bool:
        by_hand = any(
            frame.function == "__enter__" and frame.path.endswith("partition_parameters.py") for frame in _frames(side)
        )
        return by_hand or bool(_SAVES_WEIGHTS & set(side.functions))

    def _uneven(self) -> bool:
        """Whether the ranks have read unequally many batches, or one has left a loop after fewer steps than another."""
        batches = {side.batches for side in self.divergence.sides}
        if 0 not in batches and len(batches) > 1:
            return True
        if self.left_loop is not None and self.left_loop[2].kind == "for":
            inside, outside, _ = self.left_loop
            return outside.steps <= inside.steps
        return 0 in batches and len({side.steps for side in self.divergence.sides}) > 1

    def _tower_on_one_side(self) -> bool:
        marked = [bool(_TOWER.search(_named(side))) for side in self.sides]
        return any(marked) and not all(marked)

    def _different_batches(self) -> bool:
        """Whether one side's batch has tensors that another's has not."""
        return len({frozenset(name for name, _ in side.batch) for side in self.sides}) > 1


def _named(side: Side) -> str:
    return " ".join([side.call.module or "", *side.call.parameters]) if side.call is not None else ""


def _frames(side: Side) -> tuple[Frame, ...]:
    return side.call.frames if side.call is not None else ()


def _in_forward(side: Side, guard: Guard) -> bool:
    """Whether the condition stands in a module's forward: one of the model's layers, not the whole model."""
    return any(
        frame.function == "forward" and frame.path == guard.path and frame.line >= guard.line for frame in _frames(side)
    )


def _has_left(side: Side, loop: Guard, inside: Call) -> bool:
    """Whether a side has ended, or calls something below the loop in the function that holds it."""
    if side.call is None:
        return True
    own = [frame for frame in side.call.frames if frame.path == loop.path and frame.function == loop.function]
    inner = [f.line for f in inside.frames if f.path == loop.path and f.function == loop.function]
    last = max(inner, default=loop.line)
    within = any((guard.path, guard.line) == (loop.path, loop.line) for guard in side.guards)
    return bool(own) and not within and own[0].line > last
