"""Each text that the source asks for in Chinese has its translation, with the same placeholders."""

from __future__ import annotations

import json
import string
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))

from translations import ZH, calls_of, leveled, sources, texts_in, written

from gonogo.finding import Text, translated

ENTRIES: dict[str, str] = json.loads(ZH.read_text(encoding="utf-8"))


def test_the_catalogue_is_level_with_the_source() -> None:
    assert ZH.read_text(encoding="utf-8") == written(leveled(ENTRIES)), "run `make translations`"


def test_nothing_is_left_untranslated() -> None:
    assert [text for text, chinese in ENTRIES.items() if not chinese] == []


def test_the_chinese_takes_values_that_it_is_given() -> None:
    """Those of the English, and others that a ``format`` of the same file passes: a plural ``s`` is no Chinese."""
    faults = []
    for path, tree in sources():
        formats = [call for call in calls_of(tree) if getattr(call.func, "attr", "") == "format"]
        passed = {word.arg for call in formats for word in call.keywords}
        for key in texts_in(path, tree):
            lacking = values(ENTRIES[key]) - values(key) - passed
            faults += [f"{path.name}: {ENTRIES[key]}: {lacking}"] if lacking else []
    assert faults == []


def values(text: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(text) if name and name.isidentifier()}


def test_a_text_that_has_no_translation_yet_stays_english() -> None:
    assert translated("a text of this test") == Text("a text of this test", "a text of this test")


def test_context_tells_two_meanings_apart() -> None:
    several = [key for key in ENTRIES if key.partition("|")[2] in ENTRIES]
    assert several
    for key in several:
        context, _, text = key.partition("|")
        assert translated(text, context).zh != translated(text).zh
