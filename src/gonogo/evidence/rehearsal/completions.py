"""What depends on the length of completions, which a rehearsal assumes since it has no trained weights."""

from __future__ import annotations

from collections.abc import Mapping

from gonogo.evidence.rehearsal.record import SYNTHETIC_COMPLETIONS_ASSUMPTION, MemoryShortage, RankRecord
from gonogo.finding import translated

_COMPLETION_PHASES = frozenset({"generate", "reward", "score", "forward", "backward"})
_LENGTH_DEPENDENT_CATEGORIES = frozenset({"activations", "temporary"})
COMPLETION_LENGTH_HINT = translated(
    "Completions were rehearsed at the length limit; if they stay shorter, lower it "
    "(max_completion_length, data.max_response_length, --rollout.max_new_tokens) and rehearse again"
)
"""How to confirm an out-of-memory error that depends on the length of completions."""


def is_completion_shortage(rank: RankRecord, shortage: MemoryShortage, held: Mapping[str, int]) -> bool:
    """Whether memory ran out only because of what grows with the length of completions.

    In a rehearsal one completion of each batch reaches the limit; a real model may end all of them earlier. ``held``:
    bytes by category at the peak.
    """
    if shortage.phase not in _COMPLETION_PHASES:
        return False
    if not any(assumption.what == SYNTHETIC_COMPLETIONS_ASSUMPTION for assumption in rank.assumptions):
        return False
    return (
        sum(size for category, size in held.items() if category not in _LENGTH_DEPENDENT_CATEGORIES)
        <= shortage.capacity_bytes
    )
