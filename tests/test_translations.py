"""Each text that the source asks for in Chinese has its translation, with the same placeholders."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))

from translations import ZH, leveled, written

from gonogo.finding import Text, translated

ENTRIES: dict[str, str] = json.loads(ZH.read_text(encoding="utf-8"))


def test_the_catalogue_is_level_with_the_source() -> None:
    assert ZH.read_text(encoding="utf-8") == written(leveled(ENTRIES)), "run `make translations`"


def test_nothing_is_left_untranslated() -> None:
    assert [text for text, chinese in ENTRIES.items() if not chinese] == []


def test_both_languages_take_the_same_values() -> None:
    def values(text: str) -> set[str]:
        return set(re.findall(r"(?<!\{)\{(\w+)", text.replace("{{", "")))

    assert {text: chinese for text, chinese in ENTRIES.items() if values(text) != values(chinese)} == {}


def test_a_text_that_has_no_translation_yet_stays_english() -> None:
    assert translated("a text of this test") == Text("a text of this test", "a text of this test")


def test_context_tells_two_meanings_apart() -> None:
    several = [key for key in ENTRIES if key.partition("|")[2] in ENTRIES]
    assert several
    for key in several:
        context, _, text = key.partition("|")
        assert translated(text, context).zh != translated(text).zh
