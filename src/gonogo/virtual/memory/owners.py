"""Owners of a storage's bytes: one module, or for a flat buffer several modules, range by range.

An owner is a module's path, None (outside any module), or :class:`OwnerRanges`. Buffers that ZeRO, FSDP and DDP flatten
contain several parameters one after the other; their partitions, copies in another dtype, gradients and optimizer
states have the same order, so their shares follow from those of the buffer that they are derived from.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate


@dataclass(frozen=True, slots=True)
class OwnerRanges:
    """The owners of a flat buffer: consecutive ranges of (bytes, module path), with None for padding."""

    ranges: tuple[tuple[int, str | None], ...]

    @property
    def nbytes(self) -> int:
        """Total size of all ranges."""
        return sum(count for count, _ in self.ranges)


Owner = str | OwnerRanges | None


def owner_of_ranges(ranges: Iterable[tuple[int, str | None]]) -> Owner:
    """The owner of consecutive ranges. Adjacent ranges of one module are merged; a single module is returned as its
    path."""
    joined: list[tuple[int, str | None]] = []
    for count, module in ranges:
        if joined and joined[-1][1] == module:
            joined[-1] = (joined[-1][0] + count, module)
        elif count:
            joined.append((count, module))
    if len(joined) <= 1:
        return joined[0][1] if joined else None
    return OwnerRanges(tuple(joined))


def owner_of_positions(ranges: Iterable[tuple[int, int, str]], nbytes: int) -> Owner:
    """The owner of a buffer of ``nbytes`` from ranges (start, end, module) in any order.

    Where ranges overlap (tied weights), the first one owns the bytes; gaps belong to None.
    """
    laid: list[tuple[int, str | None]] = []
    at = 0
    for start, end, module in sorted(ranges):
        start, end = max(start, at), min(end, nbytes)
        if end > start:
            laid += [(start - at, None), (end - start, module)]
            at = end
    return owner_of_ranges([*laid, (nbytes - at, None)])


def owner_of_part(owner: Owner, start: int, end: int) -> Owner:
    """The owner of bytes ``start`` to ``end`` of a buffer with owner ``owner``."""
    if not isinstance(owner, OwnerRanges):
        return owner
    ends = list(accumulate(count for count, _ in owner.ranges))
    return owner_of_ranges(
        (min(last, end) - max(last - count, start), module)
        for (count, module), last in zip(owner.ranges, ends, strict=True)
        if min(last, end) > max(last - count, start)
    )


def divide_among_modules(owner: Owner, nbytes: int) -> list[tuple[str | None, int]]:
    """Divide ``nbytes`` among modules in proportion to ``owner``'s ranges, adding up to exactly ``nbytes``."""
    if not isinstance(owner, OwnerRanges):
        return [(owner, nbytes)]
    whole = owner.nbytes
    ends = [last * nbytes // whole for last in accumulate(count for count, _ in owner.ranges)]
    return [
        (module, last - before)
        for (_, module), last, before in zip(owner.ranges, ends, [0, *ends], strict=False)
        if last > before
    ]


def scale_owner(owner: Owner, nbytes: int) -> Owner:
    """The owner of a buffer of ``nbytes`` with the same elements in another dtype."""
    if not isinstance(owner, OwnerRanges) or owner.nbytes == nbytes:
        return owner
    return owner_of_ranges((count, module) for module, count in divide_among_modules(owner, nbytes))
