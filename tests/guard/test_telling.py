"""What is added to an exception, and that it is told from what the program said."""

from __future__ import annotations

import sys

import pytest
from guard.worlds import ROOT

from gonogo.evidence.guarded.records import ZeroState
from gonogo.evidence.rehearsal.record import Operand
from gonogo.guard.rank import exceptions
from gonogo.guard.rank.exceptions import FailureContext, annotate, context_lines

CONTEXT = FailureContext(
    module="layers.0",
    module_class="Linear",
    operands=(
        Operand("x", "cuda:0", "float32", (2, 3)),
        Operand("self.weight", "cpu", "float32", (3, 3), "layers.0.weight", "parameter"),
    ),
    zero=(ZeroState("layers.0.weight", "NOT_AVAILABLE", (3, 3), "cpu", 5),),
)
ENGLISH = [
    "gonogo: rank 1, step 2",
    "  in module layers.0 (Linear)",
    "  tensors on the failing line:",
    "    x            cuda:0  float32  (2, 3)",
    "    self.weight  cpu     float32  (3, 3)  parameter layers.0.weight",
    "  ZeRO-3: layers.0.weight is NOT_AVAILABLE, full shape (3, 3), 5 elements on cpu on this rank",
]


def test_what_is_told() -> None:
    assert context_lines(CONTEXT, ("rank 1", "step 2"), "en") == ENGLISH
    chinese = "\n".join(context_lines(CONTEXT, ("rank 1",), "zh"))
    assert "模块 layers.0（Linear）" in chinese
    assert "参数 layers.0.weight" in chinese


class OfAnOlderPython(RuntimeError):
    """An exception that takes no notes, as before Python 3.11."""

    add_note: None

    def __getattribute__(self, name: str) -> object:
        if name == "add_note":
            raise AttributeError(name)
        return super().__getattribute__(name)


def test_without_notes_the_message_grows() -> None:
    with pytest.raises(OfAnOlderPython) as raised:
        raise OfAnOlderPython("too bad")
    error = raised.value
    annotate(error, CONTEXT, ("rank 1", "step 2"), "en")
    assert str(error).splitlines() == ["too bad", *ENGLISH]
    assert exceptions._message(error) == "too bad"
    assert "gonogo" not in exceptions._format_traceback(error, None).replace(ROOT, "")
    assert exceptions._format_traceback(error, None).endswith("OfAnOlderPython: too bad\n")


def test_exceptions_that_take_nothing_are_left_alone() -> None:
    error = OfAnOlderPython(3, "of several parts")
    annotate(error, CONTEXT, ("rank 1",), "en")
    assert error.args == (3, "of several parts")


def test_nothing_known_adds_nothing() -> None:
    error = ValueError("alone")
    annotate(error, FailureContext(), ("rank 1",), "en")
    assert (str(error), getattr(error, "__notes__", [])) == ("alone", [])


@pytest.mark.skipif(sys.version_info < (3, 11), reason="notes came with Python 3.11")
def test_notes_of_the_programs_are_kept() -> None:
    with pytest.raises(ValueError, match="alone") as raised:
        raise ValueError("alone")
    raised.value.add_note("mine")
    annotate(raised.value, CONTEXT, ("rank 1",), "en")
    printed = exceptions._format_traceback(raised.value, None)
    assert printed.endswith("ValueError: alone\nmine\n")
