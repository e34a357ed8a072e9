"""A table to draw, and what all tables of a report share: ranks alike on one line, places that fit a cell."""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from gonogo.finding.ranks import format_ranges


class Table(msgspec.Struct, frozen=True):
    """A table to draw: all cells are clean text; the columns in ``numeric`` go to the right."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: frozenset[int] = frozenset()
    note: str = ""
    shares: frozenset[int] = frozenset()
    """Columns of percentages ("41 %"), beside which a page may draw a bar."""


def merged(rows: Iterable[tuple[int, tuple[str, ...]]]) -> tuple[tuple[str, ...], ...]:
    """Rows of (rank, cells) with the ranks of equal cells on one line: eight ranks alike are one row, ``0-7``."""
    ranks_of: dict[tuple[str, ...], list[int]] = {}
    for rank, cells in rows:
        ranks_of.setdefault(cells, []).append(rank)
    return tuple((format_ranges(ranks), *cells) for cells, ranks in ranks_of.items())


def short_place(place: str) -> str:
    """A place in an installed package without the folder that it is installed in: a cell of a table is narrow."""
    return re.sub(r"^.*/(?:site|dist)-packages/", "", place)
