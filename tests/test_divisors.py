"""What a cure lists as divisors: exact for small numbers, short and quick for any."""

from __future__ import annotations

import pytest

from gonogo.hazards.facts.divisors import smallest_divisors_text


@pytest.mark.parametrize(
    ("number", "least", "listed"),
    [
        (12, 1, "1, 2, 3, 4, 6, 12"),
        (12, 2, "2, 3, 4, 6, 12"),
        (1, 2, ""),
        (7, 2, "7"),
        (5040, 1, "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 15, 16, 18, 20, …"),
        (10**30, 2, "2, 4, 5, 8, 10, 16, 20, 25, 32, 40, 50, 64, 80, 100, 125, 128, …"),
    ],
)
def test_the_smallest_of_them(number: int, least: int, listed: str) -> None:
    assert smallest_divisors_text(number, least) == listed
