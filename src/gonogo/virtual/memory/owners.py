"""Whose bytes a storage holds: one module's, or, of a flat buffer, those of several, range by range.

A storage is owned by a module's path, by None (outside any module), or by :class:`Shares`. What ZeRO, FSDP and DDP
flatten is several parameters one after the other; a partition of it, a copy in another dtype, its gradient and its
optimizer's states have the same order, so that their shares follow from those of the buffer that they are made of.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate


@dataclass(frozen=True, slots=True)
class Shares:
    """Ranges of a flat buffer in its order: (bytes, module); what belongs to nobody (padding) is None's."""

    ranges: tuple[tuple[int, str | None], ...]

    @property
    def nbytes(self) -> int:
        """Bytes of all ranges."""
        return sum(count for count, _ in self.ranges)


Owner = str | Shares | None


def shares(ranges: Iterable[tuple[int, str | None]]) -> Owner:
    """The owner of consecutive ranges: neighbours of one module become one; a buffer of one module is that module's."""
    joined: list[tuple[int, str | None]] = []
    for count, module in ranges:
        if joined and joined[-1][1] == module:
            joined[-1] = (joined[-1][0] + count, module)
        elif count:
            joined.append((count, module))
    if len(joined) <= 1:
        return joined[0][1] if joined else None
    return Shares(tuple(joined))


def placed(ranges: Iterable[tuple[int, int, str]], nbytes: int) -> Owner:
    """The owner of a buffer of ``nbytes`` in which modules have ranges (start, end, module), in any order.

    Of ranges that overlap (tied weights) the first has what both have; what lies between them is None's.
    """
    laid: list[tuple[int, str | None]] = []
    at = 0
    for start, end, module in sorted(ranges):
        start, end = max(start, at), min(end, nbytes)
        if end > start:
            laid += [(start - at, None), (end - start, module)]
            at = end
    return shares([*laid, (nbytes - at, None)])


def owner_of_part(owner: Owner, start: int, end: int) -> Owner:
    """The owner of the bytes from ``start`` to ``end`` of what ``owner`` owns."""
    if not isinstance(owner, Shares):
        return owner
    ends = list(accumulate(count for count, _ in owner.ranges))
    return shares(
        (min(last, end) - max(last - count, start), module)
        for (count, module), last in zip(owner.ranges, ends, strict=True)
        if min(last, end) > max(last - count, start)
    )


def divided(owner: Owner, nbytes: int) -> list[tuple[str | None, int]]:
    """``nbytes`` of a buffer like that which ``owner`` owns, by module: they add up to ``nbytes``."""
    if not isinstance(owner, Shares):
        return [(owner, nbytes)]
    whole = owner.nbytes
    ends = [last * nbytes // whole for last in accumulate(count for count, _ in owner.ranges)]
    return [
        (module, last - before)
        for (_, module), last, before in zip(owner.ranges, ends, [0, *ends], strict=False)
        if last > before
    ]


def scaled(owner: Owner, nbytes: int) -> Owner:
    """The owner of a buffer of ``nbytes`` that holds the same elements in another dtype."""
    if not isinstance(owner, Shares) or owner.nbytes == nbytes:
        return owner
    return shares((count, module) for module, count in divided(owner, nbytes))
