"""Where ranks diverge: the first collective that they do not all make alike, as facts."""

from __future__ import annotations

from typing import Literal

import msgspec

from gonogo.finding.frame import Frame

Kind = Literal["other-call", "other-size", "ended", "deadlock"]
"""How ranks diverge: they make different collectives of one group; the same one with other sizes or types; some have
ended while others wait; or they wait for each other in several groups."""


ENGINE_CONSTRUCTION = "vllm.LLM"
ENGINE_GENERATION = "vllm.LLM.generate"
"""The operators of a rollout engine in the trainers' processes: all of them make it; those that share it step it."""


class LoopExit(msgspec.Struct, frozen=True):
    """A condition by which a loop is left: ``if stop: break``."""

    line: int
    text: str
    made_of: tuple[str, ...] = ()

    @property
    def texts(self) -> tuple[str, ...]:
        """The condition, and what its names were computed from."""
        return (self.text, *self.made_of)


class EnclosingCondition(msgspec.Struct, frozen=True):
    """A condition or loop that a line of the program stands in."""

    path: str
    line: int
    text: str
    kind: Literal["if", "else", "while", "for"]
    """``else`` also for what comes after ``if …: return`` (or ``continue``, ``break``, ``raise``)."""
    function: str = ""
    """The function that it stands in."""
    made_of: tuple[str, ...] = ()
    """What the names in it were computed from: of ``stop``, ``rank == 0 and step > limit``."""
    exits: tuple[LoopExit, ...] = ()
    """Of a loop: the conditions by which it is left."""

    @property
    def texts(self) -> tuple[str, ...]:
        """The condition, and what its names were computed from."""
        return (self.text, *self.made_of)


class CollectiveCall(msgspec.Struct, frozen=True):
    """One collective as one rank made it."""

    operator: str
    """Without torch's underscores: ``allreduce``, ``allgather_base``, ``barrier``, ``all_gather_object`` ..."""
    group: tuple[int, ...]
    """Global ranks of the process group."""
    index: int
    """How many collectives the rank had made in this group before."""
    sizes: tuple[int, ...] = ()
    """Elements of each tensor, as they have to agree among the ranks."""
    dtype: str | None = None
    reduction: str | None = None
    root: int | None = None
    """Global rank that sends to all, or gets from all."""
    module: str | None = None
    """Path of the module that was running, forward or backward."""
    parameters: tuple[str, ...] = ()
    """The parameters that ZeRO gathers or reduces by it, by full name where that is known."""
    phase: str = "load"
    step: int = 0
    frames: tuple[Frame, ...] = ()
    """The stack of the call without torch's frames, outermost call first."""

    def innermost(self, owner: str) -> Frame | None:
        """The innermost frame of that owner, or None."""
        return next((frame for frame in reversed(self.frames) if frame.owner == owner), None)


class Side(msgspec.Struct, frozen=True):
    """Ranks that did the same where the ranks diverge."""

    ranks: tuple[int, ...]
    call: CollectiveCall | None
    """What they call; None for ranks that have ended."""
    before: tuple[CollectiveCall, ...] = ()
    """The first of these ranks' last collectives before it, the latest last."""
    guards: tuple[EnclosingCondition, ...] = ()
    """The conditions and loops of the program's own code that the call stands in, outermost first."""
    batch: tuple[tuple[str, str], ...] = ()
    """The first of these ranks' last batch: (name, type and shape)."""
    batches: int = 0
    """How many batches it had read."""
    steps: int = 0
    """Optimizer steps it had made."""
    functions: tuple[str, ...] = ()
    """Names of the functions on the call's stack, torch's included, outermost first."""


class Divergence(msgspec.Struct, frozen=True):
    """The first collective that the rehearsed ranks do not make together."""

    kind: Kind
    sides: tuple[Side, ...]
    """Most ranks first."""
    agreed: CollectiveCall | None = None
    """The last collective of the same group that all of them made alike."""
    earlier: tuple[Side, ...] = ()
    """Where they had diverged before: the same collective, but called at different places of the program, from which on
    it was so each time (a barrier of one rank alone that is matched with the next barrier of the others)."""
