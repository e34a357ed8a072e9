"""Published data sets by their names on the Hub: columns, splits, configurations. Contains no rows."""

from __future__ import annotations

import json
from functools import cache

import msgspec

from gonogo.evidence.published.models import FOLDER


class PublishedDataset(msgspec.Struct, frozen=True):
    """A published data set. ``columns`` maps each column to its kind of content (``prepare/generated/rows.py``)."""

    name: str
    columns: dict[str, str]
    splits: tuple[str, ...] = ("train",)
    subsets: tuple[str, ...] = ()
    of_subset: dict[str, dict[str, str]] = {}
    """The columns of configurations that differ from ``columns``."""

    def columns_in(self, subset: str | None) -> dict[str, str]:
        """The columns of a configuration."""
        return self.of_subset.get(subset or "", self.columns)


@cache
def _load_datasets() -> dict[str, PublishedDataset]:
    """Keyed by the name in lower case."""
    read = json.loads((FOLDER / "datasets.json").read_text(encoding="utf-8"))
    found = {}
    for row in read:
        for name in row["names"]:
            found[name.lower()] = PublishedDataset(
                name,
                _parse_columns(row["columns"]),
                tuple(row.get("splits", ("train",))),
                tuple(row.get("subsets", ())),
                {subset: _parse_columns(facts) for subset, facts in row.get("of_subset", {}).items()},
            )
    return found


def _parse_columns(columns_text: str) -> dict[str, str]:
    """Parses ``name:kind`` pairs; the kind defaults to text."""
    pairs = (part.partition(":") for part in columns_text.split())
    return {name: kind or "text" for name, _, kind in pairs}


def published_dataset(name: str) -> PublishedDataset | None:
    """The data set of that name on the Hub; None if it isn't in the table."""
    return _load_datasets().get(name.strip("/").lower())
