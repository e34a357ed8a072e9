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
        ("RuntimeError", "Dynamo is not supported on Python 3.12+", "does not support Python 3.12, and trl compiles"),
        (
            "RuntimeError",
            "In order to use an autograd.Function with functorch transforms (vmap, grad), it must override …",
            "whose forward still takes ctx",
        ),
        ("ValueError", "torch.cat(): expected a non-empty list of Tensors", "the list that step joins is empty"),
        ("RuntimeError", "Split sizes doesn't match total dim 0 size", "do not add up to the input's rows"),
        (
            "AssertionError",
            "Expects tensor to be on the compute device cuda:0, was on cpu",
            "needs a weight on cuda:0, and it is on cpu",
        ),
        (
            "TypeError",
            "to() received an invalid combination of arguments - got (dtype=torch.dtype, device=module, ), but …",
            "device is a module in this call",
        ),
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


PLACED = [
    (
        CodePlace("/venv/torch/_utils.py", 571, "_flatten_dense_tensors", "", "package", "torch", "2.9"),
        "ValueError",
        "torch.cat(): expected a non-empty list of Tensors",
        "the list that",
    ),
    (
        CodePlace("/venv/deepspeed/runtime/zero/stage_1_and_2.py", 403, "__init__", "", "package", "deepspeed", "0.18"),
        "ValueError",
        "torch.cat(): expected a non-empty list of Tensors",
        "a parameter group has no parameter to train",
    ),
    (
        CodePlace("/venv/a/part.py", 9, "take", "part.copy_(flat.narrow(0, start, n))", "package", "deepspeed", "0.18"),
        "IndexError",
        "Dimension out of range (expected to be in range of [-32, 32], but got 128)",
        "the part that take takes begins at 128, and the tensor has 32 elements",
    ),
    (
        CodePlace("/venv/megatron/core/transformer/moe/token_dispatcher.py", 9, "go", "", "package", "megatron-core"),
        "RuntimeError",
        "Split sizes doesn't match total dim 0 size",
        "the number of tokens that each expert's rank is to get",
    ),
    (
        CodePlace("/venv/torch/optim/adam.py", 447, "_single_tensor_adam", "", "package", "torch", "2.9"),
        "RuntimeError",
        "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!",
        "the optimizer steps with gradients on one device and its own states",
    ),
    (
        CodePlace("/venv/verl/single_controller/ray/base.py", 55, "__call__", "output = ray.get(output)", "package"),
        "RaySystemError",
        "Attempting to deserialize object on a CUDA device but torch.cuda.is_available() is False.",
        "a worker returned a tensor that lies on its GPU",
    ),
    (
        CodePlace("/venv/accelerate/mesh.py", 5, "get_mesh", 'raise ("You need to pass a device_type")', "package"),
        "TypeError",
        "exceptions must derive from BaseException",
        "what it means to say is: You need to pass a device_type",
    ),
]


@pytest.mark.parametrize(("place", "type", "text", "said"), PLACED, ids=lambda value: str(value)[:30])
def test_the_place_decides_what_a_message_means(place: CodePlace, type: str, text: str, said: str) -> None:
    because, change = explain_by_rule(raised(text, place, type=type))
    assert because is not None
    assert change is not None
    assert said in because.en


def test_a_key_that_a_template_has_and_its_call_does_not_give() -> None:
    code = 'sample["chosen"] = chosen_format.format(chosen=sample[field_chosen])'
    place = CodePlace("/venv/axolotl/dpo.py", 38, "transform_fn", code, "package", "axolotl", "0.18")
    message = Message("'my_chosen'", form="missing_key", names=("my_chosen",))
    because, change = explain_by_rule(RaisedException("KeyError", message, (place,), "run.log", 1))
    assert because is not None
    assert change is not None
    assert "has a placeholder {my_chosen}" in because.en
    assert "a later release of it" in change.en


def test_a_prefix_of_other_heads_is_peft_s() -> None:
    text = "Sizes of tensors must match except in dimension 2. Expected size 32 but got size 64 for tensor number 1."
    inner = CodePlace("/venv/transformers/cache_utils.py", 120, "update", "", "package", "transformers", "5.1")
    outer = CodePlace("/venv/peft/peft_model.py", 1980, "forward", "", "package", "peft", "0.19")
    assert explain_by_rule(raised(text, inner)) == (None, None)
    because, _ = explain_by_rule(raised(text, outer, inner))
    assert because is not None
    assert "the prefix that peft puts into the cache" in because.en
