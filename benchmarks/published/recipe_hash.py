"""Which recipe a result is of: a hash of all that decides what is rehearsed, and which figure is taken from it."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

PROGRAMS = Path(__file__).resolve().parent / "programs"
_DECIDING = (
    "project", "commit", "folder", "remove", "build", "beside", "command", "case", "gpus", "ranks", "with", "as_of",
    "python", "own_environment", "prepare", "means", "figure",
)  # fmt: skip
_PROGRAM = re.compile(r"\{programs\}/(?P<name>[\w.]+)")


def recipe_of(row: dict[str, Any], program: Callable[[str], bytes] | None = None) -> str:
    """The hash of a row's recipe, with the files of ``programs/`` that it runs (read by ``program``)."""
    read = program or (lambda name: (PROGRAMS / name).read_bytes())
    deciding = {name: row[name] for name in _DECIDING if name in row}
    found = hashlib.sha256(json.dumps(deciding, sort_keys=True).encode())
    commands = " ".join(str(row.get(name, "")) for name in ("build", "command"))
    for name in sorted({match["name"] for match in _PROGRAM.finditer(commands)}):
        found.update(name.encode() + b"\0" + read(name))
    return found.hexdigest()[:16]


def is_stale(row: dict[str, Any], result: dict[str, Any]) -> bool:
    """Whether a result is of another recipe than the row's is now."""
    return result.get("recipe") != recipe_of(row)
