"""What benchmarks share whose cells are run for real once (``--really``), and compared with that afterwards."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
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


def compare(
    cells: Sequence[_Cell], truth: dict[str, Any], judged: Callable[[_Cell, Any, Path], tuple[list[str], str]]
) -> str:
    """Rehearse each cell in an empty folder, print what is wrong with it, and say how many are right: "3 of 4"."""
    if not cells:
        sys.exit("no cell is chosen: none has these words in its name")
    from warm_worlds import WarmWorlds

    right, worlds, before = 0, WarmWorlds(), os.getcwd()
    for cell in cells:
        with tempfile.TemporaryDirectory() as name, worlds.in_use():
            wrong, said = judged(cell, truth.get(cell.name), Path(name))
            os.chdir(before)
        right += not wrong
        print(f"{'wrong' if wrong else 'right'}: {said}: {cell.name}", *wrong, sep="\n    ", flush=True)
    worlds.close()
    return f"{right} of {len(cells)}"
