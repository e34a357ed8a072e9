"""What ``gonogo cure`` is asked for."""

from __future__ import annotations

from dataclasses import dataclass

from gonogo.rehearse.request import RehearsalRequest


@dataclass(frozen=True)
class CureRequest:
    """One call. ``rehearsal.ranks`` is what the user asked for; ``own_ranks``: nobody asked, the cure chooses itself.

    ``budget`` is in seconds, and no new trial begins after it.
    """

    rehearsal: RehearsalRequest
    own_ranks: bool = True
    budget: float = 3600.0
    allow_training_changes: bool = False
    upstream: bool = False
    """Whether other releases of the package that fails are compared, and what they show is tried first."""
    patch_file: str = "cure.patch"
