"""Masks secrets in everything that gonogo stores about a program: records, reports, logs.

Secrets are recognised by their format, by the name beside them (``secret_formats.py``), and by the values of this
process's environment variables, which are searched for anywhere.
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
"""Minimum length of a value that is searched for only because an environment variable holds it."""


class Redactor:
    """Masks text in the format of a secret, and secrets held in environment variables."""

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
        """The text with secrets masked."""
        for value, mask in self._masks.items():
            if value in text:
                text = text.replace(value, mask)
        if self._words is not None:
            text = self._words.sub(MASK, text)
        return replace_secrets(text, lambda _prefix, _rest: MASK)

    def data(self, data: bytes, formats: bool = True) -> bytes:
        """Binary data with each byte of a secret masked, so that offsets stay the same.

        ``formats``: also mask what merely has the format of a secret.
        """
        for value in self._in_bytes:
            if value in data:
                data = data.replace(value, b"*" * len(value))
        if formats:
            text = data.decode("latin-1")
            data = replace_secrets(text, lambda _prefix, rest: "*" * len(rest)).encode("latin-1")
        return data

    def redact_tree(self, value: T) -> T:
        """A record, a report, or any part of them, with secrets masked in all its text."""
        return _map_strings(value, cache(self.text))


def redact(text: str) -> str:
    """The text with everything in the format of a secret, and the secrets in this process's environment, masked."""
    return process_redactor().text(text)


def redact_strings(value: T) -> T:
    """A record, a report, or any part of them, with :func:`redact` applied to all its text."""
    return process_redactor().redact_tree(value)


def process_redactor() -> Redactor:
    """The redactor of this process's environment, which takes 0.2 ms to look at: ask once for many texts."""
    return _cached_redactor(tuple(os.environ.items()))


@lru_cache(maxsize=2)
def _cached_redactor(variables: tuple[tuple[str, str], ...]) -> Redactor:
    return Redactor(dict(variables))


def _secrets_of(environment: Mapping[str, str]) -> Iterator[str]:
    """Strings to search for anywhere: whole values of secret variables, and parts of values in a secret's format."""
    for name, value in environment.items():
        if is_secret(name, value):
            yield value
        yield from _find_secrets(value)


def _find_secrets(value: str) -> list[str]:
    found: list[str] = []

    def mask_secret(prefix: str, rest: str) -> str:
        """Remember a secret that was found, and replace it by the mask."""
        found.append(prefix + rest)
        return MASK

    replace_secrets(value, mask_secret)
    return found


def _quote_pattern(value: str) -> str:
    return quote(value.encode("utf-8", "surrogateescape"), safe="")


def _is_word(value: str) -> bool:
    """Whether a value could occur in a text with another meaning, so that it only counts as a separate word."""
    return value.isalpha() or value.isdecimal()


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
