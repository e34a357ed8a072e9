"""What a program's use of its rows says of their columns."""

from __future__ import annotations

import pytest

from gonogo.evidence.script.script import Script
from gonogo.evidence.source_file import SourceFile
from gonogo.prepare.columns import add_column_kinds, dict_key_columns
from gonogo.prepare.generated.rows import RowGenerator


def scripts(text: str) -> list[Script]:
    return [Script(SourceFile("train.py", text.encode()))]


TEMPLATES = 'TEMPLATES = {"multiple choice": "A", "OCR: read": "B"}\n'


@pytest.mark.parametrize(
    "use",
    [
        TEMPLATES + 'def prompt(row):\n    return TEMPLATES[row["task"]]\n',
        TEMPLATES + 'def prompt(row):\n    task = row["task"]\n    return TEMPLATES[task]\n',
        "def prompt(row):\n    " + TEMPLATES + '    return TEMPLATES[row["task"]]\n',
    ],
)
def test_a_column_that_selects_a_dicts_entry_holds_its_keys(use: str) -> None:
    columns = add_column_kinds(["task", "question"], scripts(use))
    name, _, kind = columns[0].partition(":")
    assert columns[1] == "question"
    rows = [RowGenerator({name: kind, "question": "text"}, 20, {}).row(number) for number in range(4)]
    assert {row["task"] for row in rows} == {"multiple choice", "OCR: read"}


@pytest.mark.parametrize(
    "use",
    [
        'TEMPLATES = {**other, "a": "b"}\ndef prompt(row):\n    return TEMPLATES[row["task"]]\n',  # not all keys known
        'TEMPLATES = {0: "a"}\ndef prompt(row):\n    return TEMPLATES[row["task"]]\n',
        TEMPLATES + 'TEMPLATES = load()\ndef prompt(row):\n    return TEMPLATES[row["task"]]\n',
        TEMPLATES + 'def prompt(row):\n    return TEMPLATES.get(row["task"], "")\n',  # any text will do
    ],
)
def test_otherwise_a_column_says_nothing(use: str) -> None:
    assert dict_key_columns(scripts(use)) == {}
