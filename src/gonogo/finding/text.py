"""Text shown to users, in two languages."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path

import msgspec

CHINESE_TEXTS_FILE = Path(__file__).with_name("zh.json")
"""The Chinese for each English text in the source, in the same order; ``make translations`` keeps it up to date."""


class Text(msgspec.Struct, frozen=True):
    """A sentence that a user reads, in English and Chinese.

    Both languages take the same ``{name}`` placeholders; :meth:`format` fills both at once, and a
    placeholder's value may itself be a :class:`Text`.
    """

    en: str
    zh: str

    def format(self, **values: object) -> Text:
        """Fill the placeholders of both languages. Raises KeyError for a missing value."""
        en = {name: value.en if isinstance(value, Text) else value for name, value in values.items()}
        zh = {name: value.zh if isinstance(value, Text) else value for name, value in values.items()}
        return Text(self.en.format(**en), self.zh.format(**zh))

    def in_language(self, language: str) -> str:
        """The sentence in ``"en"`` or ``"zh"``."""
        return self.zh if language == "zh" else self.en


def translated(en: str, context: str = "") -> Text:
    """The text with its Chinese from ``zh.json``; if there is none yet, the English serves for both.

    ``context`` distinguishes meanings for which English has a single word: the entry is then ``"context|en"``.
    """
    return Text(en, _load_chinese().get(f"{context}|{en}" if context else en) or en)


@cache
def _load_chinese() -> dict[str, str]:
    return msgspec.json.decode(CHINESE_TEXTS_FILE.read_bytes(), type=dict[str, str])


def load_texts(module: str) -> dict[str, Text]:
    """The named texts beside a module (its ``__file__``): ``words.texts.json`` of ``words.py``."""
    return msgspec.json.decode(Path(module).with_suffix(".texts.json").read_bytes(), type=dict[str, Text])


def join_texts(texts: Iterable[Text], comma: str = ", ", comma_zh: str = "，") -> Text:
    """Several texts joined into one, with a separator for each language."""
    several = list(texts)
    return Text(comma.join(text.en for text in several), comma_zh.join(text.zh for text in several))
