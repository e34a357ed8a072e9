"""Runs the program as ``python PATH`` or ``python -m NAME`` would."""

from __future__ import annotations

import os
import runpy
import sys

from gonogo.virtual.ranks.plan import WorkerPlan


def run_program(plan: WorkerPlan) -> None:
    """Run to the end of the program; what it raises, ``SystemExit`` too, comes through."""
    if plan.program_kind == "module":
        sys.argv = [plan.program, *plan.arguments]
        sys.path.insert(0, os.getcwd())
        runpy.run_module(plan.program, run_name="__main__", alter_sys=True)
        return
    sys.argv = [plan.program, *plan.arguments]
    sys.path.insert(0, os.path.dirname(os.path.abspath(plan.program)))
    runpy.run_path(plan.program, run_name="__main__")
