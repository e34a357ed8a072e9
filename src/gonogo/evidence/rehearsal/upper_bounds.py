"""Shortages that depend on an assumption by which a rehearsal takes the most that the run may take."""

from __future__ import annotations

from collections.abc import Mapping

from gonogo.evidence.rehearsal.record import UNCOMPILED_ASSUMPTION, UNKNOWN_MASK_ASSUMPTION, MemoryShortage, RankRecord
from gonogo.finding import Text, translated

_CATEGORIES_OF_CODE = frozenset({"activations", "temporary"})
_HINTS = {
    UNCOMPILED_ASSUMPTION: translated(
        "Compiled code may take less memory than the uncompiled code that was rehearsed: one step on the GPU shows it"
    ),
    UNKNOWN_MASK_ASSUMPTION: translated(
        "A mask whose values aren't known selects every element in the rehearsal: on the GPU it may select fewer"
    ),
}
"""By assumption, how to confirm an out-of-memory error that depends on it."""


def upper_bound_hints(rank: RankRecord, shortage: MemoryShortage, held: Mapping[str, int]) -> tuple[Text, ...]:
    """How to confirm the shortage if the code takes less than was rehearsed; empty if it runs out all the same.

    ``held``: bytes by category at the peak. While loading, what the program computes counts as its parameters.
    """
    kept = sum(size for category, size in held.items() if category not in _CATEGORIES_OF_CODE)
    if kept > shortage.capacity_bytes and shortage.phase != "load":
        return ()
    assumed = {assumption.what for assumption in rank.assumptions}
    return tuple(hint for assumption, hint in _HINTS.items() if assumption in assumed)
