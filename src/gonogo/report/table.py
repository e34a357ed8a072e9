"""Tables, and what all tables of a report share: merging identical ranks, shortening paths."""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from gonogo.finding.ranks import format_ranges


class Table(msgspec.Struct, frozen=True):
    """A table to draw: all cells are clean text; ``numeric`` columns are right-aligned."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: frozenset[int] = frozenset()
    note: str = ""
    shares: frozenset[int] = frozenset()
    """Columns of percentages ("41 %"), beside which a page may draw a bar."""


def merge_rank_rows(rows: Iterable[tuple[int, tuple[str, ...]]]) -> tuple[tuple[str, ...], ...]:
    """Merge rows of (rank, cells) that have equal cells: eight identical ranks become one row, ``0-7``."""
    ranks_of: dict[tuple[str, ...], list[int]] = {}
    for rank, cells in rows:
        ranks_of.setdefault(cells, []).append(rank)
    return tuple((format_ranges(ranks), *cells) for cells, ranks in ranks_of.items())


def short_place(place: str) -> str:
    """A path in an installed package without the folder that it is installed in, because table cells are narrow.

    ``--with`` installs each package into a folder of its own: ``…/gonogo/packages/NAME-VERSION-py3.11/``.
    """
    return re.sub(r"^.*/(?:(?:site|dist)-packages|gonogo/packages/[^/]+)/", "", place)
