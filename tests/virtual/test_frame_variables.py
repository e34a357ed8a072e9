"""Variables of running functions are read and set, and what they hold ends when the program lets go of it."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import gonogo
from gonogo.virtual.frame_variables import local_variable, local_variables, set_local_variable


class Logits:
    pass


def here() -> FrameType:
    """The caller's frame."""
    return sys._getframe(1)


READERS: dict[str, Callable[[FrameType], Any]] = {
    "all": lambda frame: local_variables(frame)["step"],
    "one": lambda frame: local_variable(frame, "step"),
    "setting": lambda frame: set_local_variable(frame, "step", 1) or 1,
}


@pytest.mark.parametrize("reader", READERS)
def test_what_the_program_lets_go_of_is_gone(reader: str) -> None:
    step = 1
    logits = Logits()
    watched = weakref.ref(logits)
    assert READERS[reader](here()) == step
    logits = Logits()
    assert watched() is None
    assert isinstance(logits, Logits)


def test_variables_are_read_as_they_are() -> None:
    step = 1
    assert local_variables(here())["step"] == 1
    step = 2
    assert local_variable(here(), "step") == step
    assert local_variable(here(), "epoch", "none") == "none"


def test_a_variable_is_set_in_a_function_and_in_one_around_it() -> None:
    step, epoch = 1, 1

    def inner() -> int:
        set_local_variable(here(), "epoch", 99)
        return epoch

    set_local_variable(here(), "step", 99)
    assert (step, inner(), epoch) == (99, 99, 99)


def test_what_locals_returned_to_the_program_stays() -> None:
    step = 1
    settings = locals()
    local_variables(here())
    set_local_variable(here(), "step", step)
    assert settings["step"] == 1


def test_the_variables_of_a_module_stay() -> None:
    namespace: dict[str, Any] = {"read": lambda: local_variables(sys._getframe(1))}
    exec("step = 1\nfound = read()", namespace)
    assert namespace["step"] == 1
    assert namespace["found"]["step"] == 1


def test_nothing_else_reads_the_variables_of_frames() -> None:
    package = Path(gonogo.__file__).parent
    readers = [path.name for path in package.rglob("*.py") if ".f_locals" in path.read_text(encoding="utf-8")]
    assert readers == ["frame_variables.py"]
