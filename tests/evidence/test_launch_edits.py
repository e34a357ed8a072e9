"""Edits of launch scripts: options and variables, applied, give what a person would have typed."""

from __future__ import annotations

from pathlib import Path

import pytest

from gonogo.evidence.launch.launch import Launch
from gonogo.evidence.launch.reading import launches_of_command, read_launches
from gonogo.evidence.source_file import SourceFile
from gonogo.finding import Edit


def launch_in(folder: Path, text: str) -> Launch:
    path = folder / "launch.sh"
    path.write_bytes(text.encode())
    return read_launches(SourceFile.read(path))[-1]


def applied(text: str, *edits: Edit) -> str:
    data = text.encode()
    for edit in sorted(edits, key=lambda edit: edit.start, reverse=True):
        assert data[edit.start : edit.end] == edit.before
        data = data[: edit.start] + edit.after + data[edit.end :]
    return data.decode()


LINES = "torchrun --nproc_per_node 8 \\\n    t.py \\\n    --bf16 True \\\n    --lr 1e-5 \\\n    --deepspeed ds.json\n"
ARRAY = 'ARGS=(\n  --bf16 True  # half\n  --lr "1e-5"\n)\ndeepspeed t.py "${ARGS[@]}"\n'
TEXT = 'D="--nnodes 1 \\\n   --nproc_per_node 8"\ntorchrun $D t.py --bf16 --lr=1e-5\n'


@pytest.mark.parametrize(
    ("text", "name", "expected"),
    [
        (LINES, "lr", LINES.replace("    --lr 1e-5 \\\n", "")),
        (LINES, "bf16", LINES.replace("    --bf16 True \\\n", "")),
        (LINES, "deepspeed", LINES.replace(" \\\n    --deepspeed ds.json", "")),
        (ARRAY, "lr", ARRAY.replace('  --lr "1e-5"\n', "")),
        (ARRAY, "bf16", ARRAY.replace("  --bf16 True  # half\n", "  # half\n")),
        (TEXT, "bf16", TEXT.replace(" --bf16", "")),
        (TEXT, "lr", TEXT.replace(" --lr=1e-5", "")),
        ("deepspeed t.py --a 1 --bf16 --b 2\n", "bf16", "deepspeed t.py --a 1 --b 2\n"),
    ],
)
def test_removing(text: str, name: str, expected: str, tmp_path: Path) -> None:
    launch = launch_in(tmp_path, text)
    changed = applied(text, launch.options.removing(name))
    assert changed == expected
    again = launch_in(tmp_path, changed)
    assert again.options.get(name).absent
    assert set(again.options.names()) == set(launch.options.names()) - {name}


def test_removing_from_the_launcher(tmp_path: Path) -> None:
    launch = launch_in(tmp_path, TEXT)
    assert applied(TEXT, launch.launcher_options.removing("nproc_per_node")) == TEXT.replace(
        " \\\n   --nproc_per_node 8", ""
    )
    assert applied(TEXT, launch.launcher_options.replacing("nproc_per_node", "4")) == TEXT.replace("8", "4")


@pytest.mark.parametrize(
    ("text", "name", "value", "expected"),
    [
        (LINES, "lr", "1e-6", LINES.replace("1e-5", "1e-6")),
        (ARRAY, "lr", "a b", ARRAY.replace('"1e-5"', "'a b'")),
        (TEXT, "lr", "1e-6", TEXT.replace("1e-5", "1e-6")),
        (TEXT, "bf16", "True", TEXT.replace("--bf16", "--bf16 True")),
        ("N=2\nswift sft --x $N\n", "x", "4", "N=2\nswift sft --x 4\n"),
        ("swift sft --x 1\n", "y", "4", "swift sft --x 1 --y 4\n"),
    ],
)
def test_replacing(text: str, name: str, value: str, expected: str, tmp_path: Path) -> None:
    changed = applied(text, launch_in(tmp_path, text).options.replacing(name, value))
    assert changed == expected
    assert launch_in(tmp_path, changed).options.get(name).value == value


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (LINES, LINES.replace("ds.json\n", "ds.json \\\n    --new 1\n")),
        (ARRAY, ARRAY.replace('"1e-5"', '"1e-5"\n  --new 1')),
        (TEXT, TEXT.replace("--lr=1e-5", "--lr=1e-5 --new 1")),
        ("deepspeed t.py > log 2>&1 &\n", "deepspeed t.py --new 1 > log 2>&1 &\n"),
        ("deepspeed t.py \\\n\t--a 1", "deepspeed t.py \\\n\t--a 1 \\\n\t--new 1"),
        ("deepspeed t.py \\\r\n  --a 1\r\n", "deepspeed t.py \\\r\n  --a 1 \\\r\n  --new 1\r\n"),
    ],
)
def test_adding(text: str, expected: str, tmp_path: Path) -> None:
    changed = applied(text, launch_in(tmp_path, text).options.adding("new", "1"))
    assert changed == expected
    assert launch_in(tmp_path, changed).options.get("new").value == "1"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("#!/bin/bash\nset -e\n# note\ndeepspeed t.py\n", "#!/bin/bash\nset -e\n# note\nexport X=1\ndeepspeed t.py\n"),
        ("export X=0\ndeepspeed t.py\n", "export X=1\ndeepspeed t.py\n"),
        ("X=0 deepspeed t.py\n", "X=1 deepspeed t.py\n"),
        ("export Y=1 X=0 Z=2\ndeepspeed t.py\n", "export Y=1 X=1 Z=2\ndeepspeed t.py\n"),
        ("if a; then\n  deepspeed t.py\nfi\n", "if a; then\n  export X=1\n  deepspeed t.py\nfi\n"),
        ("cd x && deepspeed t.py\n", "cd x && X=1 deepspeed t.py\n"),
        ("Y=2 \\\ndeepspeed t.py | tee log\n", "export X=1\nY=2 \\\ndeepspeed t.py | tee log\n"),
        ("env X=0 deepspeed t.py\n", "env X=1 deepspeed t.py\n"),
        ("f() { deepspeed t.py; }\nf\n", "f() { X=1 deepspeed t.py; }\nf\n"),
    ],
)
def test_setting_a_variable(text: str, expected: str, tmp_path: Path) -> None:
    changed = applied(text, launch_in(tmp_path, text).setting_variable("X", "1"))
    assert changed == expected
    assert launch_in(tmp_path, changed).variable("X").value == "1"


def test_a_typed_command_is_not_edited(tmp_path: Path) -> None:
    (launch,) = launches_of_command(["deepspeed", "t.py", "--a", "1"], tmp_path)
    edits = [launch.options.removing("a"), launch.options.adding("b", "1"), launch.setting_variable("X", "1")]
    assert all(edit.before == edit.after == b"" for edit in edits)
    assert not launch.options.can_edit("a")


def test_what_a_program_prints_is_not_edited(tmp_path: Path) -> None:
    text = "deepspeed t.py $(printf '%s' '--a 1 --b 2') --c 3\n"
    launch = launch_in(tmp_path, text)
    assert launch.options.get("a").value == "1"
    assert not launch.options.can_edit("a")
    assert applied(text, launch.options.removing("a")) == text
    assert launch.options.can_edit("c")
