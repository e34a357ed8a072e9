"""Published data sets by their hub names: columns, splits, configurations. Facts; no rows."""

from __future__ import annotations

import json
from functools import cache

import msgspec

from gonogo.evidence.published.models import FOLDER


class PublishedDataset(msgspec.Struct, frozen=True):
    """A data set as it is published. ``columns`` say of each what it holds (``rehearse/prepared/rows.py``)."""

    name: str
    columns: dict[str, str]
    splits: tuple[str, ...] = ("train",)
    subsets: tuple[str, ...] = ()


@cache
def _table() -> dict[str, PublishedDataset]:
    """By the name in small letters."""
    read = json.loads((FOLDER / "datasets.json").read_text(encoding="utf-8"))
    found = {}
    for row in read:
        for name in row["names"]:
            columns = dict(part.split(":") if ":" in part else (part, "text") for part in row["columns"].split())
            one = PublishedDataset(name, columns, tuple(row.get("splits", ("train",))), tuple(row.get("subsets", ())))
            found[name.lower()] = one
    return found


def published_dataset(name: str) -> PublishedDataset | None:
    """The data set of that hub name; None where it is not in the table."""
    return _table().get(name.strip("/").lower())
