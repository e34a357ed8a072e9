"""Secrets masked in all that gonogo writes down of a program: records, reports, logs that are kept.

What a secret is, is said by its format, by the name that it stands beside (``secret_formats.py``), and by the variables
of this process, whose values are looked for wherever they may stand.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, lru_cache
from typing import TypeVar
from urllib.parse import quote

import msgspec

from gonogo.finding.secret_formats import MASK, is_secret, known_prefix, replace_secrets

T = TypeVar("T")

MIN_SECRET_LENGTH = 8
"""Characters of the shortest value that is looked for in text only because a variable holds it."""


class Redactor:
    """Masks what has the format of a secret, and the secrets that some variables hold."""

    def __init__(self, environment: Mapping[str, str], extra_secrets: Iterable[str] = ()) -> None:
        values = {value for value in _secrets_of(environment) if len(value) >= MIN_SECRET_LENGTH} | {
            one for one in extra_secrets if one
        }
        masks: dict[str, str] = {}
        for value in sorted(values, key=lambda one: (-len(one), one)):
            for form in (
                value,
                json.dumps(value)[1:-1],
                json.dumps(value, ensure_ascii=False)[1:-1],
                _quote_pattern(value),
            ):
                masks.setdefault(form, known_prefix(value) + MASK)
        self._masks = {value: mask for value, mask in masks.items() if not _is_word(value)}
        words = [re.escape(value) for value in masks if _is_word(value)]
        self._words = re.compile(rf"(?<!\w)(?:{'|'.join(words)})(?!\w)") if words else None
        self._in_bytes = [value.encode("utf-8", "surrogateescape") for value in masks]

    def text(self, text: str) -> str:
        """The text without them."""
        for value, mask in self._masks.items():
            if value in text:
                text = text.replace(value, mask)
        if self._words is not None:
            text = self._words.sub(MASK, text)
        return replace_secrets(text, lambda _prefix, _rest: MASK)

    def data(self, data: bytes, formats: bool = True) -> bytes:
        """Bytes that are no text without them, each byte of a secret masked: what stands around it stays in its place.

        ``formats``: also what only has the format of one.
        """
        for value in self._in_bytes:
            if value in data:
                data = data.replace(value, b"*" * len(value))
        if formats:
            text = data.decode("latin-1")
            data = replace_secrets(text, lambda _prefix, rest: "*" * len(rest)).encode("latin-1")
        return data

    def tree(self, value: T) -> T:
        """A record, a report, or what they are made of, with all of its text without them."""
        return _map_strings(value, cache(self.text))


def redact(text: str) -> str:
    """The text without what has the format of a secret, and without the secrets that this process's variables hold."""
    return _process_redactor().text(text)


def redacted(value: T) -> T:
    """A record, a report, or what they are made of, with :func:`redact` of all its text."""
    return _process_redactor().tree(value)


def _process_redactor() -> Redactor:
    return _redactor(tuple(os.environ.items()))


@lru_cache(maxsize=2)
def _redactor(variables: tuple[tuple[str, str], ...]) -> Redactor:
    return Redactor(dict(variables))


def _secrets_of(environment: Mapping[str, str]) -> Iterator[str]:
    """What must not be read anywhere: whole values by name, and within values what has the format of a secret."""
    for name, value in environment.items():
        if is_secret(name, value):
            yield value
        yield from _find_secrets(value)


def _find_secrets(value: str) -> list[str]:
    found: list[str] = []

    def note(prefix: str, rest: str) -> str:
        found.append(prefix + rest)
        return MASK

    replace_secrets(value, note)
    return found


def _quote_pattern(value: str) -> str:
    return quote(value.encode("utf-8", "surrogateescape"), safe="")


def _is_word(value: str) -> bool:
    """Whether a value could stand in a text for something else, too: then only as a word by itself is it the secret."""
    return value.isalpha() or value.isdigit()


def _map_strings(value: T, transform: Callable[[str], str]) -> T:
    changed: object = value
    if isinstance(value, str):
        if type(value) is str:
            changed = transform(value)
    elif isinstance(value, msgspec.Struct):
        names = value.__struct_fields__
        old = [getattr(value, name) for name in names]
        new = [_map_strings(one, transform) for one in old]
        if any(a is not b for a, b in zip(old, new, strict=True)):
            changed = msgspec.structs.replace(value, **dict(zip(names, new, strict=True)))
    elif isinstance(value, (list, tuple, set, frozenset)):
        if not all(isinstance(one, (int, float, type(None))) for one in value):
            items = [_map_strings(one, transform) for one in value]
            if any(a is not b for a, b in zip(value, items, strict=True)):
                changed = type(value)(items)
    elif isinstance(value, dict):
        pairs = {_map_strings(key, transform): _map_strings(one, transform) for key, one in value.items()}
        if any(a is not b for a, b in zip((*value, *value.values()), (*pairs, *pairs.values()))):  # noqa: B905
            changed = pairs
    return changed  # type: ignore[return-value]
