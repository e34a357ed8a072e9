import ast
import sys
import time
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from script_text import only_call, script_of

from gonogo.evidence.script.parameters import parameter_uses
from gonogo.evidence.script.project import read_script
from gonogo.evidence.script.script import Script
from gonogo.evidence.source_file import SourceFile


def everything(script: Script) -> None:
    """Ask a script for all that there is."""
    for call in script.calls():
        assert call.place.span().line >= 1
        for name in (*call.keywords, "device_map"):
            call.keyword(name)
            call.keyword_place(name)
        call.argument(0)
        script.kind_of(call.node)
        script.with_contexts(call.node)
        script.guarded_by(call.node)
        script.enclosing_class(call.node)
        script.enclosing_loop(call.node)
        for name in call.keywords:
            script.removing_keyword(call, name)
        script.setting_keyword(call, "device_map", "None")
    for statement in script.nodes(ast.Assign, ast.Expr, ast.If, ast.FunctionDef):
        script.removing_statement(statement)
        script.inserting_before(statement, "pass")
        script.inserting_after(statement, "pass")
    for use in parameter_uses(script):
        if use.zero is not None:
            use.zero.removal(script)
    list(script.calls("*.from_pretrained", "torch.*"))
    for info in script.classes:
        for name in info.defaults:
            info.default(name)
    script.inserting_import("import x")
    assert isinstance(script.imported, tuple)


@pytest.mark.parametrize(
    ("data", "kind", "line"),
    [
        (b"x = 1\nf(\n", "syntax", 2),
        (b"def f():\nx\n", "syntax", 2),
        (b"print 'a'\n", "syntax", 1),
        (b"a = 1\n\0\n", "null-byte", 2),
        (b"a = '\xff'\n", "encoding", 1),
        (b"# -*- coding: nonsense -*-\n", "encoding", 1),
        (b"#!/bin/x\n# coding=punycode\n", "encoding", 2),
        (b"# coding: euc-jp\n'\xff'\n", "encoding", 1),
        (b"x = " + b"-" * 20_000 + b"1", "too-deep", 1),
        (b"x = " + b"(" * 500 + b"1", "syntax", 1),
        (b"x = 1" + b"+1" * 30_000, "too-deep", 1),
        (b"x" + b".y" * 30_000, "too-deep", 1),
        (b"#" * 3_000_000, "too-large", 1),
    ],
)
def test_a_file_that_is_no_script_says_why(data: bytes, kind: str, line: int) -> None:
    script = read_script(SourceFile("train.py", data))
    assert script.tree is None or sys.version_info < (3, 11)
    if script.problem is not None:
        assert script.problem.kind == kind
        assert script.problem.place.line == line
        assert script.problem.message.en
        assert script.problem.message.zh
    everything(script)


@pytest.mark.parametrize(
    ("line", "since"),
    [
        ("type X = int", (3, 12)),
        ("def f[T](x: T): pass", (3, 12)),
        ("class A[T]: pass", (3, 12)),
        ("x = f'{a['b']}'", (3, 12)),
        ("x = t'{a}'", (3, 14)),
    ],
)
def test_newer_syntax_is_no_fault_of_the_script(line: str, since: tuple[int, int]) -> None:
    problem = script_of(line).problem
    if sys.version_info >= since:
        assert problem is None
    else:
        assert problem is not None
        assert problem.kind == "newer-python"
        assert problem.needs == ".".join(map(str, since))
        assert not problem.is_rejected_by_python


def test_other_encodings_are_read_at_their_places() -> None:
    data = "# -*- coding: gbk -*-\nf('模型', k='路径')\n".encode("gbk")
    script = read_script(SourceFile("train.py", data))
    call = only_call(script, "?.f")
    assert call.argument(0).value == "模型"
    place = call.keyword_place("k")
    assert place is not None
    assert data[place.start : place.end].decode("gbk") == "k='路径'"


def test_places_are_of_bytes() -> None:
    script = script_of("\ufeffx = '模型'; f('é', k=1)\n")
    place = only_call(script, "?.f").keyword_place("k")
    assert place is not None
    assert place.text == "k=1"


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=300))
@example(b"\xef\xbb\xbf")
@example(b"a\x0c\n  b\r\rc")
@example(b"f(**{**{}, 'a': 1}, *b)")
@example(b"# coding: utf-7\n+AGE-")
def test_any_bytes_are_answered(data: bytes) -> None:
    everything(read_script(SourceFile("train.py", data)))


PUNCTUATION = list("()[]{},:=+;@.*#'\"\\\n\t\r")
WORDS = [
    *(
        "f(",
        "x",
        "self",
        "model",
        ".weight",
        "lambda ",
        "**kwargs",
        "p.sum()",
        "* 0.0",
        "loss",
        "k=1",
        "async ",
        "await ",
    ),
    *(
        "del ",
        "global x",
        "return ",
        "pass",
        " " * 4,
        "\n" + " " * 4,
        "def g(x):",
        "class A(B):",
        "if x:",
        "else:",
        "é",
    ),
    *("for p in m.parameters():", "import a.b as c", "from . import d", "from a import *", "x = x", "with a as b:"),
]
PIECES = st.lists(st.sampled_from(PUNCTUATION + WORDS), max_size=40)


@settings(max_examples=300, deadline=None)
@given(PIECES)
def test_any_pieces_of_scripts_are_answered(pieces: list[str]) -> None:
    everything(read_script(SourceFile("train.py", "".join(pieces).encode())))


@pytest.mark.parametrize(
    "text",
    [
        "x = " + "[" * 90 + "]" * 90,
        "x = a" + ".b" * 900 + "()",
        "f" + "()" * 900,
        "x = 1" + " + p.sum()" * 700,
        "\n".join(["a = b", "b = a", "class C(C): pass", "class D(E): pass", "class E(D): pass", "f(a, D())"]),
        "\n".join(" " * i + "if a:" for i in range(90)) + "\n" + " " * 90 + "f(x)",
        "if a:\n    f(1)\n" + "elif b:\n    f(2)\n" * 700,
        "def f(x):\n    return f(f(x))\ny = f(f(1))\ny.g()\n",
        "\n".join(f"x = g(x)\nx.m{i}()" for i in range(300)),
        "\n".join(f"if c:\n    x = g{i}(x)\n" for i in range(300)) + "x.m()",
        "k = {}\n" + "".join(f"k['a{i}'] = {i}\n" for i in range(500)) + "f(**k)\n" * 20,
    ],
)
def test_deep_and_circular_scripts_are_answered_soon(text: str) -> None:
    start = time.process_time()
    everything(script_of(text))
    assert time.process_time() - start < 10


def test_the_standard_library_is_read() -> None:
    for path in sorted(Path(ast.__file__).parent.glob("a*.py")):
        script = read_script(SourceFile.read(path))
        assert script.problem is None
        everything(script)
