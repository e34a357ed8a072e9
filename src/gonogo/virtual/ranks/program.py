"""Runs the program as ``python PATH`` or ``python -m NAME`` would, and a notebook as if its cells were one program."""

from __future__ import annotations

import linecache
import os
import runpy
import sys
from pathlib import Path
from types import ModuleType

from gonogo.evidence.notebook import SUFFIX, python_of
from gonogo.virtual.protocol.plan import WorkerPlan


def run_program(plan: WorkerPlan) -> None:
    """Run to the end of the program; what it raises, ``SystemExit`` too, comes through."""
    if plan.program_kind == "module":
        sys.argv = [plan.program, *plan.arguments]
        sys.path.insert(0, os.getcwd())
        runpy.run_module(plan.program, run_name="__main__", alter_sys=True)
        return
    sys.argv = [plan.program, *plan.arguments]
    sys.path.insert(0, os.path.dirname(os.path.abspath(plan.program)))
    if plan.program.endswith(SUFFIX):
        _run_notebook(plan.program)
        return
    runpy.run_path(plan.program, run_name="__main__")


def _run_notebook(path: str) -> None:
    """Its code cells in order, each line under the number that it has in the file: tracebacks name the notebook."""
    code = (python_of(Path(path).read_bytes()) or b"").decode("utf-8", "replace")
    linecache.cache[path] = (len(code), None, code.splitlines(keepends=True), path)
    main = ModuleType("__main__")
    main.__dict__["__file__"] = path
    sys.modules["__main__"] = main
    exec(compile(code, path, "exec"), main.__dict__)
