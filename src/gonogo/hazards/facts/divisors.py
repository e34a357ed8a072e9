"""The numbers that divide one, for cures that name what would do."""

from __future__ import annotations

_MAX_DIVISOR = 1 << 16
_SHOWN = 16


def divisors(number: int, minimum: int = 1) -> str:
    """The smallest of them from ``minimum`` on, as a sentence lists them: ``1, 2, 4, 8``; ``…`` stands for the rest."""
    found = [one for one in range(minimum, min(number, _MAX_DIVISOR) + 1) if number % one == 0]
    more = len(found) > _SHOWN or number > _MAX_DIVISOR
    return ", ".join([*(str(one) for one in found[:_SHOWN]), *(["…"] if more else [])])
