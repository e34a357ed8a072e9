"""What Python's own modules look for by themselves is nothing that a program has asked for."""

from __future__ import annotations

import gettext
from pathlib import Path

from gonogo.virtual.sandbox import failed_lookups


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
