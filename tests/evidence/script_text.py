"""Scripts written in tests."""

from __future__ import annotations

import ast
from textwrap import dedent

from gonogo.evidence.script.project import read_script
from gonogo.evidence.script.script import Call, Script
from gonogo.evidence.source_file import SourceFile
from gonogo.finding import Edit


def script_of(text: str, path: str = "train.py") -> Script:
    """A script of this text, dedented."""
    return read_script(SourceFile(path, dedent(text).encode()))


def only_call(script: Script, pattern: str) -> Call:
    """The one call that matches."""
    (call,) = script.calls(pattern)
    return call


def applied(script: Script, edit: Edit | None) -> str:
    """The script's text with an edit made; it must still parse."""
    assert edit is not None
    data = script.source.data
    assert data[edit.start : edit.end] == edit.before
    after = data[: edit.start] + edit.after + data[edit.end :]
    ast.parse(after)
    return after.decode()
