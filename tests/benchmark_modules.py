"""Imports a benchmark as Python runs it: with what is beside it, and without leaving its folder on the path.

Folders of tests have the names of benchmarks (plan, guard, rehearse), and a module anywhere on the path comes before a
folder without ``__init__.py``, wherever that is: ``from guard.worlds import …`` would find ``benchmarks/guard.py``.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


def benchmark(name: str) -> Any:
    """The module ``benchmarks/NAME.py``."""
    before = [*sys.path]
    sys.path.insert(0, str(BENCHMARKS))
    try:
        return importlib.import_module(name)
    finally:
        sys.path[:] = before  # a benchmark puts folders on the path too
