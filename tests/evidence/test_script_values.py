from typing import Any

import pytest
from script_text import only_call, script_of

from gonogo.evidence.script.values import Symbol
from gonogo.hazards.launcher.distributed_without_launcher import environment_settings


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("f(1)", 1),
        ("f(-1.5)", -1.5),
        ("f('a' 'b')", "ab"),
        ("f('a' + 'b')", "ab"),
        ("f(2 * 1024 ** 2)", 2 * 1024**2),
        ("f((1, 'a'))", (1, "a")),
        ("f([1, [2]])", [1, [2]]),
        ("f({'': 0})", {"": 0}),
        ("f(dict(a=1))", {"a": 1}),
        ("f({**{'a': 1}, 'b': 2})", {"a": 1, "b": 2}),
        ("f(None)", None),
        ("f(not True)", False),
        ("x = 'auto'\nf(x)", "auto"),
        ("X = 'auto'\ndef g():\n    f(X)", "auto"),
        ("x, y = 1, 2\nf(y)", 2),
        ("x = 1\nx = 2\nf(x)", 2),
        ("a = 'x'\nf(f'{a}/b{1}')", "x/b1"),
        ("f(str(1))", "1"),
        ("f(int('3'))", 3),
        ("f(1 if a else 1)", 1),
        ("import torch\nf(torch.bfloat16)", "torch.bfloat16"),
        ("import torch as t\nD = t.float16\nf(D)", "torch.float16"),
        ("class A:\n    def g(self):\n        self.x = 3\n    def h(self):\n        f(self.x)", 3),
    ],
)
def test_values_that_files_tell(text: str, value: Any) -> None:
    field = only_call(script_of(text), "?.f").argument(0)
    assert field.known
    assert field.value == value
    assert isinstance(field.value, Symbol) == (value in ("torch.bfloat16", "torch.float16"))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("def g(x):\n    f(x)", "x is a parameter of g"),
        ("if a:\n    x = 1\nelse:\n    x = 2\nf(x)", "x is assigned more than one value"),
        ("x = 1\ndef g():\n    f(x)\nx = 2", "x is assigned more than one value"),
        ("for x in y:\n    f(x)", "the value is computed only when the script runs: x"),
        ("f(g(1))", "the value is computed only when the script runs: g(...)"),
        ("import os\nf(os.environ['X'])", "the value depends on the environment variable X"),
        ("import os\nf(int(os.environ.get('X', 'd')))", "the value depends on the environment variable X"),
        ("from os import getenv\nx = getenv('X')\nf(x)", "the value depends on the environment variable X"),
        ("import argparse as p\na = p.ArgumentParser().parse_args()\nf(a.b)", "a.b comes from the command line (--b)"),
        ("f(training_args.bf16)", "training_args.bf16 comes from the command line (--bf16)"),
        ("x = {'a': 1}\nx['b'] = 2\nf(x)", "the script modifies x after creating it"),
        ("f(x)", "x is not defined in this file"),
        ("f(2 ** 10 ** 9)", "the value is computed only when the script runs: BinOp"),
        ("f('a' * 10 ** 9)", "the value is computed only when the script runs: BinOp"),
        ("f({'': rank()})", "the value is computed only when the script runs: rank(...)"),
    ],
)  # fmt: skip
def test_values_that_files_do_not_tell_have_a_reason(text: str, reason: str) -> None:
    field = only_call(script_of(text), "?.f").argument(0)
    assert field.unknown
    assert field.reason is not None
    assert field.reason.en == reason


def test_doubling_names_take_no_time() -> None:
    lines = ["a0 = ('x' * 1, 'y')"] + [f"a{i + 1} = (a{i}, a{i})" for i in range(25)]
    assert only_call(script_of("\n".join([*lines, "f(a25)"])), "?.f").argument(0).unknown


def test_keywords_through_dictionaries() -> None:
    script = script_of(
        """
        kwargs = dict(trust=True, gone=1)
        kwargs["device_map"] = "auto"
        if quantize:
            kwargs["quantization"] = 8
        kwargs.pop("gone")
        kwargs.update(revision="main")
        load("a", *more, low=True, **{"given": 1}, **kwargs)
        kwargs["late"] = 1
        """
    )
    call = only_call(script, "?.load")
    assert call.keyword("device_map").value == "auto"
    assert call.has("device_map")
    assert call.keyword("trust").value is True
    assert call.keyword("given").value == 1
    assert call.keyword("low").value is True
    assert call.keyword("revision").value == "main"
    assert call.keyword("quantization").unknown
    assert not call.has("quantization")
    assert call.keyword("gone").absent
    assert call.keyword("late").absent
    assert not call.has_unknown_kwargs
    place = call.keyword_place("device_map")
    assert place is not None
    assert place.text == 'kwargs["device_map"] = "auto"'
    assert call.argument(0).value == "a"
    assert call.argument(1).unknown
    assert call.argument(5).unknown


@pytest.mark.parametrize(
    "text", ["def g(**k):\n    f(**k)", "f(**k)", "f(**g())", "k = {}\nk[x] = 1\nf(**k)", "k = {**a}\nf(**k)"]
)
def test_what_a_star_may_hide_is_unknown(text: str) -> None:
    call = only_call(script_of(text), "?.f")
    assert call.has_unknown_kwargs
    assert call.keyword("device_map").unknown


def test_defaults_of_the_projects_own_arguments_count() -> None:
    script = script_of(
        """
        from dataclasses import dataclass, field
        import transformers

        @dataclass
        class Base(transformers.TrainingArguments):
            optim: str = field(default="adamw_torch")
            bf16: bool = True
            tags: list = field(default_factory=list)

        class Mine(Base):
            seed: int = 7

        args = Mine(output_dir="out", bf16=False)
        """
    )
    call = only_call(script, "transformers.TrainingArguments")
    assert call.keyword("optim").value == "adamw_torch"
    assert call.keyword("seed").value == 7
    assert call.keyword("bf16").value is False
    assert call.keyword("tags").unknown
    assert call.keyword("fp16").absent
    assert not call.has("optim")
    assert call.keyword_place("optim") is None
    base, mine = script.classes
    assert base.default("bf16").value is True
    assert mine.default("optim").value == "adamw_torch"
    assert base.defaults == ("optim", "bf16", "tags")


def test_the_environment_variable_of_an_expression() -> None:
    script = script_of("import os\nrank = int(os.environ.get('LOCAL_RANK', 0))\nf({'': rank}, rank)")
    call = only_call(script, "?.f")
    assert script.environment_variable(call.node.args[1]) == "LOCAL_RANK"
    assert call.argument(0).unknown


def test_the_environment_variables_that_a_script_sets() -> None:
    script = script_of(
        """
        import os
        from os import environ
        os.environ["CUDA_VISIBLE_DEVICES"] = "0,1"
        environ.setdefault("NCCL_DEBUG", "INFO")
        os.environ.update({"A": "1", **more}, B=value)
        os.environ[name] = "x"
        other["C"] = "2"
        """
    )
    settings = environment_settings(script)
    assert [(each.name, each.value.value, each.default) for each in settings] == [
        ("CUDA_VISIBLE_DEVICES", "0,1", False),
        ("NCCL_DEBUG", "INFO", True),
        ("A", "1", False),
        ("B", None, False),
    ]
    assert settings[3].value.unknown
