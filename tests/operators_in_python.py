"""Programs run for real with DeepSpeed's compiled operators in Python."""

from __future__ import annotations

import os
from pathlib import Path

FOLDER = Path(__file__).parent / "python_operators"


def path_without_compiling() -> str:
    """The ``PYTHONPATH`` of a program whose DeepSpeed compiles nothing, where this process's own counts as well."""
    path = os.environ.get("PYTHONPATH")
    return f"{FOLDER}{os.pathsep}{path}" if path else str(FOLDER)


def without_compiling(environment: dict[str, str]) -> dict[str, str]:
    """That program's environment."""
    return environment | {"PYTHONPATH": path_without_compiling()}
