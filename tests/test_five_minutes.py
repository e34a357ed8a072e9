"""The six questions of a newcomer stand on README's first screen, each with at most two commands that exist."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent


def loaded() -> ModuleType:
    spec = importlib.util.spec_from_file_location("five_minutes", ROOT / "benchmarks" / "five_minutes.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


five_minutes = loaded()


@pytest.mark.parametrize("name", five_minutes.TASKS)
def test_readme_says_on_its_first_screen_what_is_typed(name: str) -> None:
    five_minutes.check_shown(five_minutes.TASKS[name])
    table = (ROOT / "docs" / "five-minutes.md").read_text(encoding="utf-8")
    for command in five_minutes.TASKS[name].typed:
        assert command in table, "the protocol is of these commands"


def test_a_command_that_readme_lacks_is_an_error() -> None:
    task = five_minutes.Task("?", "", ("gonogo rehearse --ray auto",), ("gonogo rehearse --ray auto",))
    with pytest.raises(ValueError, match="first screen"):
        five_minutes.check_shown(task)
    assert len(five_minutes.first_screen().splitlines()) <= 40


@pytest.mark.parametrize(
    ("lines", "good"),
    [
        ([" GO (files only)   gonogo check", "Nothing is known to stop the run", "next: gonogo rehearse"], True),
        (["rank  allocated", "Nothing is known to stop the run", "next: gonogo rehearse"], False),
        ([" GO   gonogo check", "Nothing is known to stop the run", "0 errors"], False),
    ],
)
def test_an_answer_is_verdict_reason_and_next_command(lines: list[str], good: bool) -> None:
    assert five_minutes.is_answer(lines) is good
