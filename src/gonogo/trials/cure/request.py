"""The request of ``gonogo cure``."""

from __future__ import annotations

from dataclasses import dataclass

from gonogo.rehearse.request import RehearsalRequest


@dataclass(frozen=True)
class CureRequest:
    """One call. ``rehearsal.ranks`` is the user's choice; ``own_ranks``: the user made none, so the cure chooses.

    ``budget`` is in seconds; no trial begins after it.
    """

    rehearsal: RehearsalRequest
    own_ranks: bool = True
    budget: float = 3600.0
    allow_training_changes: bool = False
    upstream: bool = False
    """Whether to compare other releases of the failing package, trying first those that differ where it failed."""
    patch_file: str = "cure.patch"
