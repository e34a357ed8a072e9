"""The table of rules that explain an exception: each can be said, and says no more than the exception shows."""

from __future__ import annotations

import re

import pytest

from gonogo.diagnose.explanations.rule_table import (
    RULES_FILE,
    ExplanationRule,
    explain_by_rule,
    load_rules,
    placeholder_names,
)
from gonogo.finding import Text
from gonogo.finding.failure import CodePlace, Message, RaisedException

VALUES = [
    "type",
    "message",
    "name",
    "line",
    "function",
    "package",
    "release",
    "nearest_package",
    "caller",
    "caller_package",
]
FRAME = CodePlace("/site-packages/trl/trainer.py", 7, "step", "self.run(x)", "package", "trl", "1.0")


def raised(text: str, *frames: CodePlace, type: str = "RuntimeError") -> RaisedException:
    return RaisedException(type, Message(text), frames, "run.log", 1)


@pytest.mark.parametrize("rule", load_rules(), ids=lambda rule: rule.because.en[:40])
def test_sentences_name_only_values_that_a_rule_can_have(rule: ExplanationRule) -> None:
    patterns = [rule.says, rule.subject, rule.name, rule.code, rule.path, rule.through]
    groups = {group for pattern in patterns for group in re.compile(pattern).groupindex}
    known = groups | set(VALUES) | rule.clauses.keys()
    for text in (rule.because, rule.change, *rule.clauses.values()):
        if text is not None:
            assert placeholder_names(text) <= known
            assert placeholder_names(Text(text.en, "")) == placeholder_names(Text("", text.zh))
    assert set(rule.lower) <= groups
    assert rule.otherwise.keys() <= known


def test_a_rule_is_for_one_place_in_the_file() -> None:
    comments = re.findall(r"^# (.*)\n\[\[rules\]\]", RULES_FILE.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(comments) == len(load_rules())


def test_a_value_that_is_not_shown_leaves_the_rule_to_the_next_one() -> None:
    text = "Default process group has not been initialized, please make sure to call init_process_group."
    by_package, by_program = explain_by_rule(raised(text, FRAME)), explain_by_rule(raised(text))
    assert by_package[1] is not None
    assert "another release of trl" in by_package[1].en
    assert by_program[0] is not None
    assert by_program[1] is not None
    assert by_program[0].en.startswith("the program calls a collective")
    assert "is_initialized() is False" in by_program[1].en


def test_a_clause_without_its_value_is_left_out() -> None:
    text = "CUDA error: an illegal memory access was encountered"
    with_line, without = explain_by_rule(raised(text, FRAME))[0], explain_by_rule(raised(text))[0]
    assert with_line is not None
    assert without is not None
    assert "(noticed at `self.run(x)`)" in with_line.en
    assert "memory: CUDA reports it" in without.en


def test_a_condition_that_does_not_hold_leaves_the_exception_unexplained() -> None:
    assert explain_by_rule(raised("name 'x' is not defined", FRAME)) == (None, None)
    assert explain_by_rule(raised("name 'x' is not defined", FRAME, type="NameError"))[0] is not None


@pytest.mark.parametrize(
    ("type", "text", "said"),
    [
        (
            "NotImplementedError",
            "aten._foreach_mul_.Scalar: DTensor does not support cross-mesh operation yet! Got meshes: …",
            "different device meshes",
        ),
        (
            "TemplateError",
            "Message has tool role, but there was no previous assistant message with a tool call!",
            "cut",
        ),
        (
            "BadRequestError",
            "Messages with role 'tool' must be a response to a message with 'tool_calls'",
            "tool_calls",
        ),
        ("RuntimeError", "expected data_ptr to be aligned to 16 bytes", "a multiple of 16 bytes"),
        ("RuntimeError", "setStorage: sizes [100] are out of bounds for storage of size 0", "has been freed"),
    ],
)
def test_messages_whose_words_vary_are_explained(type: str, text: str, said: str) -> None:
    because, change = explain_by_rule(raised(text, FRAME, type=type))
    assert because is not None
    assert change is not None
    assert said in because.en


def test_a_template_that_refuses_roles_is_not_told_of_tools() -> None:
    text = "Conversation roles must alternate user/assistant/user/assistant/..."
    assert explain_by_rule(raised(text, FRAME, type="TemplateError")) == (None, None)
