"""The programs of ``tests/worlds``: ranks that part, and healthy ones, with what is expected of a rehearsal."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

WORLDS = Path(__file__).parent / "worlds"
HANG = sorted(folder.name for folder in (WORLDS / "hang").iterdir() if folder.is_dir())
HEALTHY = sorted(folder.name for folder in (WORLDS / "healthy").iterdir() if folder.is_dir())


@dataclass(frozen=True)
class Expected:
    """Where the user sees the ranks of a program part. ``hazard`` and ``module`` are None where there is none."""

    file: str
    line: int
    text: str
    """What stands in the line, so that a moved line is noticed."""
    module: str | None
    hazard: str | None
    ranks_apart: list[list[int]]
    world_size: int = 2
    needs: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, name: str) -> Expected:
        """What is expected of the hang program ``name``."""
        return cls(**json.loads((WORLDS / "hang" / name / "expected.json").read_text()))


def world_size(folder: Path) -> int:
    """How many ranks a program is written for."""
    return int(_stated(folder).get("world_size", 2))


def needs(folder: Path) -> list[str]:
    """Packages beside the usual: ``vllm`` is stood in for, and can't be run for real without a GPU."""
    return list(_stated(folder).get("needs", []))


def _stated(folder: Path) -> dict[str, Any]:
    stated = folder / "expected.json"
    values: dict[str, Any] = json.loads(stated.read_text()) if stated.exists() else {}
    return values
