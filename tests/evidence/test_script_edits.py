import ast
import os
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from script_text import applied, only_call, script_of

from gonogo.evidence.script.project import read_script
from gonogo.evidence.source_file import SourceFile

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_the_device_map_example_is_cured_by_removing_a_keyword() -> None:
    folder = EXAMPLES / "qwen_7b_device_map"
    script = read_script(SourceFile.read(folder / "finetune.py"))
    call = only_call(script, "transformers.AutoModelForCausalLM.from_pretrained")
    assert applied(script, script.removing_keyword(call, "device_map")) == (folder / "finetune_fixed.py").read_text()


def test_the_dummy_loss_example_is_cured_by_removing_a_statement() -> None:
    folder = EXAMPLES / "slam_omni_dummy_loss"
    script = read_script(SourceFile.read(folder / "train.py"))
    (statement,) = [node for node in script.nodes(ast.Assign) if "* 0.0" in script.place(node).text]
    assert applied(script, script.removing_statement(statement)) == (folder / "train_fixed.py").read_text()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("f(a, k=1)\n", "f(a)\n"),
        ("f(k=1)\n", "f()\n"),
        ("f(k=1,)\n", "f()\n"),
        ("f(k=1, b=2)\n", "f(b=2)\n"),
        ("f(a, k=(1), b=2)\n", "f(a, b=2)\n"),
        ("f((a), k=1)\n", "f((a))\n"),
        ("f(a, k=1, **b)\n", "f(a, **b)\n"),
        ("f(a, *b, k=1)\n", "f(a, *b)\n"),
        ("f(\n    a,\n    k=1,\n    b=2,\n)\n", "f(\n    a,\n    b=2,\n)\n"),
        ("f(\n    a,\n    k=1\n)\n", "f(\n    a,\n)\n"),
        (
            "f(\n    a,  # first\n    k=1,  # second\n    b=2,  # third\n)\n",
            "f(\n    a,  # first\n    b=2,  # third\n)\n",
        ),
        ("f(a,  # note, first\n  k=1)\n", "f(a  # note, first\n  )\n"),
        ("f(a,\n  k=1, b=2)\n", "f(a,\n  b=2)\n"),
        ("f(a, k=1,\n  b=2)\n", "f(a,\n  b=2)\n"),
        ("f(k=1,\n  b=2)\n", "f(b=2)\n"),
        ("f(k=1,  # why\n  b=2)\n", "f(  # why\n  b=2)\n"),
        ("f(\n    k={\n        '': 1,\n    },\n    b=2,\n)\n", "f(\n    b=2,\n)\n"),
        ("f(\r\n    a,\r\n    k=1,\r\n)\r\n", "f(\r\n    a,\r\n)\r\n"),
        ("f('é', k='é', b=2)\n", "f('é', b=2)\n"),
        ("\ufefff(a, k=1)\n", "\ufefff(a)\n"),
    ],
)
def test_a_keyword_is_removed_with_its_comma(before: str, after: str) -> None:
    script = script_of(before)
    call = next(call for call in script.calls() if call.has("k"))
    assert applied(script, script.removing_keyword(call, "k")) == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("f()\n", "f(k=1)\n"),
        ("f(a)\n", "f(a, k=1)\n"),
        ("f(a,)\n", "f(a, k=1,)\n"),
        ("f((a))\n", "f((a), k=1)\n"),
        ("f(a, **b)\n", "f(a, **b, k=1)\n"),
        ("f(a, k=2)\n", "f(a, k=1)\n"),
        ("f(a, k=(2), b=3)\n", "f(a, k=1, b=3)\n"),
        ("f(\n    a,\n)\n", "f(\n    a,\n    k=1,\n)\n"),
        ("f(\n    a\n)\n", "f(\n    a,\n    k=1\n)\n"),
        ("f(\n    a,  # why\n)\n", "f(\n    a,  # why\n    k=1,\n)\n"),
        ("f(\n    a  # why\n)\n", "f(\n    a,  # why\n    k=1\n)\n"),
        ("f(\n    a,\n    b)\n", "f(\n    a,\n    b,\n    k=1)\n"),
        ("f(a,\n  b)\n", "f(a,\n  b,\n  k=1)\n"),
        ("f(\r\n    a,\r\n)\r\n", "f(\r\n    a,\r\n    k=1,\r\n)\r\n"),
        ("f(\n\ta,\n)\n", "f(\n\ta,\n\tk=1,\n)\n"),
    ],
)
def test_a_keyword_is_set(before: str, after: str) -> None:
    script = script_of(before)
    assert applied(script, script.setting_keyword(only_call(script, "*f"), "k", "1")) == after


def test_a_generator_without_parentheses_of_its_own_takes_no_keyword() -> None:
    script = script_of("f(x for x in y)\n")
    assert script.setting_keyword(only_call(script, "*f"), "k", "1") is None


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a\ngone\nb\n", "a\nb\n"),
        ("a\n# of it\n# and more\ngone\nb\n", "a\nb\n"),
        ("a\n# not of it\n\ngone\nb\n", "a\n# not of it\n\nb\n"),
        ("if a:\n    b\n    # inside\n# of it\ngone\n", "if a:\n    b\n    # inside\n"),
        ("if a:\n    gone\nb\n", "if a:\n    pass\nb\n"),
        ("if a:\n    # of it\n    gone\nb\n", "if a:\n    pass\nb\n"),
        ("if a: gone\nb\n", "if a: pass\nb\n"),
        ("if a: b; gone\n", "if a: b\n"),
        ("gone; b\n", "b\n"),
        ("a; gone; b\n", "a; b\n"),
        ("gone  # why\nb\n", "b\n"),
        ("a\ngone", "a\n"),
        ("'''\n# text'''\ngone\n", "'''\n# text'''\n"),
        ("if a:\n    b\nelse:\n    gone\n", "if a:\n    b\nelse:\n    pass\n"),
        ("# %%\ngone\nb\n", "# %%\nb\n"),
        ("a\r\n# of it\r\ngone\r\nb\r\n", "a\r\nb\r\n"),
        ("\ufeffgone\nb\n", "\ufeffb\n"),
    ],
)
def test_a_statement_is_removed_with_its_comments(before: str, after: str) -> None:
    script = script_of(before)
    (name,) = [node for node in script.nodes(ast.Name) if node.id == "gone"]
    statement = script.statement(name)
    assert statement is not None
    assert applied(script, script.removing_statement(statement)) == after


def test_an_elif_is_left_alone() -> None:
    script = script_of("if a:\n    b\nelif c:\n    d\n")
    (inner,) = [node for node in script.nodes(ast.If) if node.lineno == 3]
    assert script.removing_statement(inner) is None
    assert script.inserting_before(inner, "x") is None


def test_a_decorated_function_goes_with_its_decorators() -> None:
    script = script_of("a\n@b\n@c(1)\ndef f():\n    pass\nd\n")
    assert applied(script, script.removing_statement(script.functions[0])) == "a\nd\n"
    assert applied(script, script.inserting_before(script.functions[0], "x = 1")).startswith("a\nx = 1\n@b\n")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("import a\n\nb\n", "import a\nimport x\n\nb\n"),
        ("'''About.'''\n\nb\n", "'''About.'''\n\nimport x\n\nb\n"),
        ("from __future__ import annotations\nb\n", "from __future__ import annotations\nimport x\nb\n"),
        ("#!/usr/bin/env python\nb\n", "#!/usr/bin/env python\nimport x\nb\n"),
        ("", "import x\n"),
        ("import a", "import a\nimport x"),
    ],
)
def test_an_import_is_added_at_the_top(before: str, after: str) -> None:
    script = script_of(before)
    assert applied(script, script.inserting_import("import x")) == after


def test_statements_are_inserted_at_the_indentation_of_others() -> None:
    script = script_of("if a:\n\tb\n")
    statement = next(node for node in script.nodes(ast.Expr))
    before = script.inserting_before(statement, "with c:\n    d")
    assert applied(script, before) == "if a:\n\twith c:\n\t    d\n\tb\n"
    assert applied(script, script.inserting_after(statement, "c()")) == "if a:\n\tb\n\tc()\n"


@pytest.mark.parametrize(
    "data",
    [b"# coding: gbk\nf(a, k=1)\n", b"f(a,\r k=1)\r", b"f(a,\r\n k=1)\n", b"f(a, k="],
    ids=["other encoding", "old line ends", "mixed line ends", "broken"],
)
def test_what_cant_be_edited_safely_is_not(data: bytes) -> None:
    script = read_script(SourceFile("train.py", data))
    assert not script.editable
    for call in script.calls():
        assert script.removing_keyword(call, "k") is None
        assert script.setting_keyword(call, "k", "2") is None


def test_a_typed_command_is_never_edited() -> None:
    script = read_script(SourceFile.from_text("<stdin>", "f(k=1)"))
    assert script.removing_keyword(next(script.calls()), "k") is None


STDLIB = sorted(path for path in Path(os.__file__).parent.glob("*.py") if path.stat().st_size < 60_000)


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(st.sampled_from(STDLIB), st.randoms(use_true_random=False))
def test_keywords_of_real_code_go_and_come_and_nothing_else_changes(path: Path, random: Random) -> None:
    script = read_script(SourceFile.read(path))
    calls = [call for call in script.calls() if any(keyword.arg for keyword in call.node.keywords)]
    if not script.editable or not calls:
        return
    call = random.choice(calls)
    keyword = random.choice([each for each in call.node.keywords if each.arg])
    assert keyword.arg is not None
    without = applied(script, script.removing_keyword(call, keyword.arg))
    call.node.keywords.remove(keyword)
    assert script.tree is not None
    assert ast.dump(ast.parse(without)) == ast.dump(script.tree)
    after = read_script(SourceFile(str(path), without.encode()))
    again = next(each for each in after.calls() if ast.dump(each.node) == ast.dump(call.node))
    with_it = applied(after, after.setting_keyword(again, "added", "1"))
    again.node.keywords.append(ast.keyword("added", ast.Constant(1)))
    assert after.tree is not None
    assert ast.dump(ast.parse(with_it)) == ast.dump(after.tree)


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(STDLIB), st.randoms(use_true_random=False))
def test_statements_of_real_code_go_and_come_and_nothing_else_changes(path: Path, random: Random) -> None:
    script = read_script(SourceFile.read(path))
    statements = list(script.nodes(ast.Expr, ast.Assign, ast.Return, ast.For, ast.With, ast.If, ast.FunctionDef))
    if not script.editable or not statements:
        return
    assert script.tree is not None
    statement = random.choice(statements)
    added = script.inserting_before(statement, "added()")
    removed = script.removing_statement(statement)
    found = script.index.block(statement)
    assert found is not None
    block = found[0]
    at = block.index(statement)
    if added is not None:
        block.insert(at, ast.parse("added()").body[0])
        assert ast.dump(ast.parse(applied(script, added))) == ast.dump(script.tree)
        block.pop(at)
    if removed is not None:
        block.pop(at)
        if not block and found[0] is not script.tree.body:
            block.append(ast.Pass())
        assert ast.dump(ast.parse(applied(script, removed))) == ast.dump(script.tree)
