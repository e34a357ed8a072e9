"""Programs run for real with DeepSpeed's compiled operators in Python."""

from __future__ import annotations

import os
from pathlib import Path

FOLDER = Path(__file__).parent / "python_operators"


def without_compiling(environment: dict[str, str]) -> dict[str, str]:
    """The environment of a program whose DeepSpeed compiles nothing."""
    path = environment.get("PYTHONPATH")
    return environment | {"PYTHONPATH": f"{FOLDER}{os.pathsep}{path}" if path else str(FOLDER)}
