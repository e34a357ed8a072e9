"""Where ranks diverge: the first collective on which they don't agree, as facts."""

from __future__ import annotations

from typing import Literal

import msgspec

from gonogo.finding.frame import Frame

Kind = Literal["other-call", "other-size", "ended", "deadlock"]
"""How ranks diverge: they call different collectives of one group; the same one with other sizes or dtypes; some have
ended while others wait; or they wait for each other in several groups."""


ENGINE_CONSTRUCTION = "vllm.LLM"
ENGINE_GENERATION = "vllm.LLM.generate"
"""Pseudo-operators of a colocated rollout engine: all trainer ranks construct it; the ranks that share it run it."""


class LoopExit(msgspec.Struct, frozen=True):
    """A condition on which a loop is left: ``if stop: break``."""

    line: int
    text: str
    made_of: tuple[str, ...] = ()

    @property
    def texts(self) -> tuple[str, ...]:
        """The code of the condition, and of the expressions that its names were computed from."""
        return (self.text, *self.made_of)


class EnclosingCondition(msgspec.Struct, frozen=True):
    """A condition or loop around a line of the program."""

    path: str
    line: int
    text: str
    kind: Literal["if", "else", "while", "for"]
    """``else`` also stands for code after ``if …: return`` (or ``continue``, ``break``, ``raise``)."""
    function: str = ""
    """The function that contains it."""
    made_of: tuple[str, ...] = ()
    """The expressions that its names were computed from: for ``stop``, ``rank == 0 and step > limit``."""
    exits: tuple[LoopExit, ...] = ()
    """For a loop: the conditions on which it is left."""

    @property
    def texts(self) -> tuple[str, ...]:
        """The code of the condition, and of the expressions that its names were computed from."""
        return (self.text, *self.made_of)


class CollectiveCall(msgspec.Struct, frozen=True):
    """A call of a collective on one rank."""

    operator: str
    """Without torch's underscores: ``allreduce``, ``allgather_base``, ``barrier``, ``all_gather_object`` ..."""
    group: tuple[int, ...]
    """Global ranks of the process group."""
    index: int
    """How many collectives the rank had called in this group before."""
    sizes: tuple[int, ...] = ()
    """Elements of each tensor, in the form that must agree among the ranks."""
    dtype: str | None = None
    reduction: str | None = None
    root: int | None = None
    """Global rank of the source or the destination."""
    module: str | None = None
    """Path of the module that was running, forward or backward."""
    parameters: tuple[str, ...] = ()
    """Parameters that ZeRO gathers or reduces with this call, by full name if known."""
    phase: str = "load"
    step: int = 0
    frames: tuple[Frame, ...] = ()
    """The stack of the call without torch's frames, outermost call first."""

    def innermost(self, owner: str) -> Frame | None:
        """The innermost frame of that owner, or None."""
        return next((frame for frame in reversed(self.frames) if frame.owner == owner), None)


class Side(msgspec.Struct, frozen=True):
    """Ranks that did the same where the ranks diverged: the same call, or none."""

    ranks: tuple[int, ...]
    call: CollectiveCall | None
    """The collective that they call; None for ranks that have ended."""
    before: tuple[CollectiveCall, ...] = ()
    """The collectives that the first of these ranks called just before, the latest last."""
    guards: tuple[EnclosingCondition, ...] = ()
    """The conditions and loops of the program's own code around the call, outermost first."""
    batch: tuple[tuple[str, str], ...] = ()
    """The last batch of the first of these ranks: (name, type and shape)."""
    batches: int = 0
    """How many batches that rank had read."""
    steps: int = 0
    """Optimizer steps that it had completed."""
    functions: tuple[str, ...] = ()
    """Names of the functions on the call's stack, torch's included, outermost first."""


class Divergence(msgspec.Struct, frozen=True):
    """The first collective that the rehearsed ranks don't call consistently."""

    kind: Kind
    sides: tuple[Side, ...]
    """Most ranks first."""
    agreed: CollectiveCall | None = None
    """The last collective of the same group on which all of them agreed."""
    earlier: tuple[Side, ...] = ()
    """Where they had diverged before: in the same collective, but called from different lines, and mismatched ever
    since (a barrier on a single rank that is matched with the next barrier of the others)."""
