"""A language model's interpretation of a failure, with each claim checked: confirmed, rejected, or proven."""

from __future__ import annotations

import msgspec

from gonogo.finding.text import Text


class CheckedClaim(msgspec.Struct, frozen=True):
    """One claim of the model, verbatim; ``why`` says what it was checked against."""

    kind: str
    """``quote``, ``place``, ``version``, ``number`` or ``symbol``."""
    said: str
    holds: bool
    why: Text


class Proof(msgspec.Struct, frozen=True):
    """The outcome of a rehearsal with the change that the model proposed."""

    proven: bool
    outcome: Text
    patch: str = ""
    pins: tuple[str, ...] = ()


class ModelReading(msgspec.Struct, frozen=True):
    """A model's answer. If there is none, ``failed`` says why, and all but ``model`` and ``server`` are empty."""

    model: str
    server: str
    """The host that was asked."""
    cause: str = ""
    claims: tuple[CheckedClaim, ...] = ()
    change: str = ""
    """The change that it proposes, in one sentence; empty if none."""
    refused: Text | None = None
    """Why the change can't be rehearsed."""
    proof: Proof | None = None
    next_step: str = ""
    failed: Text | None = None

    @property
    def confirmed_count(self) -> int:
        """The number of its claims that were confirmed."""
        return sum(claim.holds for claim in self.claims)
