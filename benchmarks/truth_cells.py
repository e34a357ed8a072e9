"""Command line of benchmarks whose cells are run for real once (``--really``), and compared with that afterwards."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar


class Named(Protocol):
    """A cell, whose name is its key in the file of truth."""

    @property
    def name(self) -> str: ...


_Cell = TypeVar("_Cell", bound=Named)


def chosen_cells(
    description: str | None, cells: Sequence[_Cell], truth_file: Path
) -> tuple[bool, list[_Cell], dict[str, Any]]:
    """Whether the cells are to be run for real, those that ``--only`` leaves, and the truth known of each so far."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--really", action="store_true")
    parser.add_argument("--only", default="")
    chosen = parser.parse_args()
    truth = json.loads(truth_file.read_text(encoding="utf-8")) if truth_file.exists() else {}
    return chosen.really, [cell for cell in cells if chosen.only in cell.name], truth
