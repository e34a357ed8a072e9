"""Each text that the source asks for in Chinese has its translation, with the same placeholders."""

from __future__ import annotations

import json
import string
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))

from translations import ZH, calls_of, leveled, sources, texts_in, written

from gonogo.finding import Text, translated
from gonogo.hazards.index import all_hazards

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


FILES_OF_TEXTS = sorted((ZH.parents[1]).rglob("*.texts.json"))


def named_texts() -> list[tuple[str, dict[str, str]]]:
    """What stands in data files: beside modules, and in the heads of hazards' pages."""
    found = [
        (f"{path.name}: {name}", text)
        for path in FILES_OF_TEXTS
        for name, text in json.loads(path.read_text(encoding="utf-8")).items()
    ]
    for hazard in all_hazards():
        found += [(f"{hazard.name}: {name}", text) for name, text in hazard.page.head.get("texts", {}).items()]
    return found


def test_texts_of_data_files_are_in_both_languages_with_the_same_values() -> None:
    texts = named_texts()
    assert len(texts) > 200
    for name, text in texts:
        assert text.keys() == {"en", "zh"}, name
        assert text["en"].strip(), name
        assert text["zh"].strip(), name
        assert values(text["zh"]) <= values(text["en"]), name


def test_each_file_of_texts_belongs_to_a_module() -> None:
    for path in FILES_OF_TEXTS:
        module = path.with_name(path.name.removesuffix(".texts.json") + ".py")
        assert "load_texts(__file__)" in module.read_text(encoding="utf-8"), path.name


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
