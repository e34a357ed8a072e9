"""What a rehearsal makes for what nobody can know without weights, completions of all lengths, and what hangs on it."""

from __future__ import annotations

from collections.abc import Mapping

from gonogo.evidence.rehearsal.record import SYNTHETIC_COMPLETIONS_ASSUMPTION, RankRecord, Shortage
from gonogo.finding import translated

_COMPLETION_PHASES = frozenset({"generate", "reward", "score", "forward", "backward"})
_LENGTH_DEPENDENT_CATEGORIES = frozenset({"activations", "temporary"})
COMPLETION_LENGTH_HINT = translated(
    "Completions were rehearsed at the length limit; if they stay shorter, lower it "
    "(max_completion_length, data.max_response_length, --rollout.max_new_tokens) and rehearse again"
)
"""How to make sure of a shortage that hangs on the length of completions."""


def is_completion_shortage(rank: RankRecord, shortage: Shortage, held: Mapping[str, int]) -> bool:
    """Whether memory ran out of what grows with the length of completions, and without that would not have.

    A rehearsal lets one of a batch reach the limit. A model may end all of them before. ``held``: bytes by category
    when it was the most.
    """
    if shortage.phase not in _COMPLETION_PHASES:
        return False
    if not any(assumption.what == SYNTHETIC_COMPLETIONS_ASSUMPTION for assumption in rank.assumptions):
        return False
    return (
        sum(size for category, size in held.items() if category not in _LENGTH_DEPENDENT_CATEGORIES)
        <= shortage.capacity_bytes
    )
