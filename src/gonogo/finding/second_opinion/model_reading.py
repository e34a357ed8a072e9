"""What a language model said of a failure, each claim of it checked: what holds, what was struck, what was proven."""

from __future__ import annotations

import msgspec

from gonogo.finding.text import Text


class CheckedClaim(msgspec.Struct, frozen=True):
    """One claim of the model's, in its words; ``why`` says what it was held against."""

    kind: str
    """``quote``, ``place``, ``version``, ``number`` or ``symbol``."""
    said: str
    holds: bool
    why: Text


class Proof(msgspec.Struct, frozen=True):
    """What a rehearsal of the run with the proposed change came to."""

    proven: bool
    outcome: Text
    patch: str = ""
    pins: tuple[str, ...] = ()


class ModelReading(msgspec.Struct, frozen=True):
    """A model's answer. ``failed`` says why there is none; then all but ``model`` and ``server`` are empty."""

    model: str
    server: str
    """The host that was asked."""
    cause: str = ""
    claims: tuple[CheckedClaim, ...] = ()
    change: str = ""
    """The change that it proposes, in one sentence; empty where it proposes none."""
    refused: Text | None = None
    """Why the change can't be rehearsed."""
    proof: Proof | None = None
    next_step: str = ""
    failed: Text | None = None

    @property
    def holding(self) -> int:
        """How many of its claims hold."""
        return sum(claim.holds for claim in self.claims)
