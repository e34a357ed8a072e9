"""What Python's own modules look for by themselves is nothing that a program has asked for."""

from __future__ import annotations

import gettext
import sqlite3
from pathlib import Path

import pytest

from gonogo.virtual.lookups import failed_lookups


def test_a_translation_of_argparses_words_is_not_asked_for(tmp_path: Path) -> None:
    asked = failed_lookups.FailedLookups()
    scope: dict[str, object] = {"__name__": "gettext", "look": asked.look}
    exec(compile("def find(path):\n    look(path)\n", gettext.__file__, "exec"), scope)
    find = scope["find"]
    assert callable(find)
    find(str(tmp_path / "de.mo"))
    assert not list(asked.latest_first())
    scope["__name__"] = "pathlib"
    find(str(tmp_path / "de.mo"))
    assert [one.name for one in asked.latest_first()] == [str(tmp_path / "de.mo")]


@pytest.mark.parametrize(
    ("name", "is_file"), [(":memory:", False), ("file:rows?mode=memory&cache=shared", False), ("file:{}?mode=ro", True)]
)
def test_a_database_in_memory_is_no_file_that_lacks(tmp_path: Path, name: str, is_file: bool) -> None:
    path = str(tmp_path / "rows.db")
    asked = failed_lookups.FailedLookups()
    undo = failed_lookups.install(asked)
    try:
        sqlite3.connect(name.format(path), uri=name.startswith("file:")).close()
    except sqlite3.OperationalError:
        assert is_file
    finally:
        undo()
    assert [one.name for one in asked.latest_first()] == [path] * is_file
