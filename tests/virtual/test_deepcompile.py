"""An engine's compile passes wait for DeepCompile, held against a DeepSpeed of four lines."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

BACKEND = """
passes = {}
def register_compile_pass(name, function, contract=None):
    passes[name] = (function, contract)
"""
ENGINE = """
class DeepSpeedEngine:
    def __init__(self):
        self.register_compile_pass("first", len)
        self.register_compile_pass("second", max, contract="kept")

    def register_compile_pass(self, name, function, contract=None):
        from deepspeed.compile.backend import register_compile_pass
        register_compile_pass(name, function, contract)
"""
EARLIER = "from deepspeed.compile import backend\n" + ENGINE
CHECKED = """
import gc, sys, weakref
from gonogo.virtual.hooks import engine
undo = engine.defer_compile_passes()
from deepspeed.runtime.engine import DeepSpeedEngine
"""


def run(folder: Path, program: str, engine: str = ENGINE) -> str:
    for name, text in {
        "__init__.py": "", "compile/__init__.py": "", "compile/backend.py": BACKEND,
        "runtime/__init__.py": "", "runtime/engine.py": engine,
    }.items():  # fmt: skip
        path = folder / "deepspeed" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    done = subprocess.run(
        [sys.executable, "-c", CHECKED + textwrap.dedent(program)],
        env=os.environ | {"PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_they_are_there_when_the_backend_is(tmp_path: Path) -> None:
    run(
        tmp_path,
        """
        engine = DeepSpeedEngine()
        assert "deepspeed.compile.backend" not in sys.modules
        gone = weakref.ref(engine)
        del engine
        gc.collect()
        assert gone() is None
        from deepspeed.compile.backend import passes
        assert passes == {"first": (len, None), "second": (max, "kept")}
        DeepSpeedEngine()
        """,
    )


def test_the_programs_own_passes_are_registered_at_once(tmp_path: Path) -> None:
    run(
        tmp_path,
        """
        engine = DeepSpeedEngine()
        engine.register_compile_pass("first", min)
        from deepspeed.compile.backend import passes
        assert passes == {"first": (min, None), "second": (max, "kept")}
        undo()
        """,
    )


@pytest.mark.parametrize("engine", [EARLIER, "class DeepSpeedEngine:\n    pass\n"], ids=["0.18", "0.14"])
def test_earlier_releases_are_left_alone(tmp_path: Path, engine: str) -> None:
    program = (
        "before = dict(vars(DeepSpeedEngine))\nDeepSpeedEngine()\nundo()\nassert vars(DeepSpeedEngine) == before\n"
    )
    run(tmp_path, program, engine)
