"""What depends on ``torch.compile``: a rehearsal runs the code uncompiled."""

from __future__ import annotations

from collections.abc import Mapping

from gonogo.evidence.rehearsal.record import UNCOMPILED_ASSUMPTION, MemoryShortage, RankRecord
from gonogo.finding import translated

_CATEGORIES_OF_CODE = frozenset({"activations", "temporary"})
COMPILED_MEMORY_HINT = translated(
    "Compiled code may take less memory than the uncompiled code that was rehearsed: one step on the GPU shows it"
)
"""How to confirm an out-of-memory error that depends on what the compiler saves."""


def is_compiled_shortage(rank: RankRecord, shortage: MemoryShortage, held: Mapping[str, int]) -> bool:
    """Whether all but the activations and temporaries fits, of which the compiler may keep less.

    ``held``: bytes by category at the peak.
    """
    if not any(assumption.what == UNCOMPILED_ASSUMPTION for assumption in rank.assumptions):
        return False
    return (
        sum(size for category, size in held.items() if category not in _CATEGORIES_OF_CODE) <= shortage.capacity_bytes
    )
