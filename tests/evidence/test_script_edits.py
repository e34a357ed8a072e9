import ast
from pathlib import Path

import pytest
from script_text import applied, only_call, script_of

from gonogo.evidence.script import read_script
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
