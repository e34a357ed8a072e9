"""A device's memory at its peak, by the model's modules, as stored in a record."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from gonogo.evidence.rehearsal.record import ModuleBytes, ModuleMemory

OUTSIDE_MODULES = "(outside any module)"
"""Name for memory that belongs to no module, in :class:`ModuleBytes`."""
_MAX_MODULES = 10


def largest_modules(allocations: Iterable[tuple[str, str | None, int]]) -> tuple[ModuleBytes, ...]:
    """The single modules that hold the most, from (category, module, bytes) triples, largest first."""
    sums: dict[str, int] = defaultdict(int)
    for _, module, nbytes in allocations:
        sums[module or OUTSIDE_MODULES] += nbytes
    largest = sorted(sums.items(), key=lambda item: (-item[1], item[0]))[:_MAX_MODULES]
    return tuple(ModuleBytes(module, nbytes) for module, nbytes in largest if nbytes)


def memory_by_modules(allocations: Iterable[tuple[str, str | None, int]]) -> tuple[ModuleMemory, ...]:
    """All allocations, with the modules of a list (``layers.0``, ``layers.1`` …) merged, largest first."""
    sums: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    members: dict[str, set[str]] = defaultdict(set)
    for category, module, nbytes in allocations:
        place = generalize_indices(module or "")
        sums[place][category] += nbytes
        members[place].add(module or "")
    order = sorted(sums, key=lambda place: (-sum(sums[place].values()), place))
    return tuple(ModuleMemory(place, dict(sums[place]), len(members[place])) for place in order)


def generalize_indices(module: str) -> str:
    """A module's path with ``*`` for each number: ``model.layers.*.mlp``."""
    return ".".join("*" if name.isdecimal() else name for name in module.split("."))
