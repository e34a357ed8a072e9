"""Divisors of a number, for cures that list valid values."""

from __future__ import annotations

_MAX_DIVISOR = 1 << 16
_MAX_SHOWN = 16


def smallest_divisors_text(number: int, minimum: int = 1) -> str:
    """The smallest divisors from ``minimum`` on, as text: ``1, 2, 4, 8``; ``…`` stands for the rest."""
    found = [one for one in range(minimum, min(number, _MAX_DIVISOR) + 1) if number % one == 0]
    more = len(found) > _MAX_SHOWN or number > _MAX_DIVISOR
    return ", ".join([*(str(one) for one in found[:_MAX_SHOWN]), *(["…"] if more else [])])
