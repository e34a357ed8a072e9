"""Determine the key or value at the cursor in a DeepSpeed JSON, and its completions; the text is often incomplete."""

from __future__ import annotations

import json
import re

import msgspec
from packaging.version import Version

from gonogo.evidence.config.deepspeed_keys import (
    KeyInfo,
    builtin_optimizers,
    builtin_schedulers,
    find_key_info,
    known_child_keys,
)
from gonogo.evidence.config.deepspeed_schema import default_in_release, describe_key, release_has_key

_TOKEN_PATTERN = re.compile(r'"(?:[^"\\\n]|\\.)*"?|//[^\n]*|/\*.*?(?:\*/|\Z)|[{}\[\]:,]|[^\s{}\[\]:,"]+', re.DOTALL)
_DEEPSPEED_ONLY_KEYS = frozenset(
    {"zero_optimization", "train_micro_batch_size_per_gpu", "train_batch_size", "zero_allow_untested_optimizer"}
)
_CONFIG_NAME_PATTERN = re.compile(
    r"(?:^|[/_.-])(?:ds|deepspeed|zero)[\w.-]*\.jsonc?$|zero[-_]?[0-3]\w*\.json", re.IGNORECASE
)


class Cursor(msgspec.Struct, frozen=True):
    """A position in a config: the keys leading to it, and whether it is at a key or at the last key's value.

    ``start`` and ``end`` are the offsets of the text typed so far; ``quoted`` if it begins with a quotation mark.
    """

    path: tuple[str, ...]
    is_key: bool
    start: int
    end: int
    quoted: bool = False


class CompletionEntry(msgspec.Struct, frozen=True):
    """A completion: its label in the list, the inserted text, and its documentation."""

    label: str
    insert: str
    said: str
    deprecated: bool = False


def is_deepspeed(path: str, text: str) -> bool:
    """Whether a JSON file is a DeepSpeed config, by its name or by a key that only such configs have."""
    return bool(_CONFIG_NAME_PATTERN.search(path)) or any(f'"{key}"' in text for key in _DEEPSPEED_ONLY_KEYS)


def cursor_at(text: str, offset: int) -> Cursor | None:
    """The key or value at an offset; None in a comment, in a list, or outside the object."""
    stack: list[tuple[str, str | None]] = []  # ("{" or "[", the key whose value follows)
    for token in _TOKEN_PATTERN.finditer(text):
        start, end, word = token.start(), token.end(), token[0]
        if start >= offset:
            break
        inside = start < offset <= end and (word[0] == '"' or word[0] not in "{}[]:,/")
        if inside and (word[0] != '"' or len(word) < 2 or not word.endswith('"') or offset < end):
            return _make_cursor(stack, start, end, quoted=word[0] == '"')
        if word.startswith(("//", "/*")):
            if offset < end or word.startswith("//"):
                return None
        elif word in "{[":
            stack.append((word, None))
        elif word in "}]":
            stack = stack[:-1]
        elif word == ",":
            _set_current_key(stack, None)
        elif word[0] == '"' and stack and stack[-1] == ("{", None):
            _set_current_key(stack, _unquote(word))
    return _make_cursor(stack, offset, offset, quoted=False)


def _set_current_key(stack: list[tuple[str, str | None]], key: str | None) -> None:
    if stack:
        stack[-1] = (stack[-1][0], key)


def _make_cursor(stack: list[tuple[str, str | None]], start: int, end: int, *, quoted: bool) -> Cursor | None:
    if not stack or stack[-1][0] == "[":
        return None
    path = tuple(key for bracket, key in stack if bracket == "{" and key is not None)
    return Cursor(path, stack[-1][1] is None, start, end, quoted)


def _unquote(word: str) -> str:
    try:
        return str(json.loads(word if len(word) > 1 and word.endswith('"') else f'{word}"'))
    except ValueError:
        return word.strip('"')


def completions_at(cursor: Cursor, release: str, language: str) -> list[CompletionEntry]:
    """The possible keys or values at the cursor, for a release of DeepSpeed."""
    version = Version(release)
    if not cursor.is_key:
        return [CompletionEntry(value, value, "") for value in _possible_values(cursor.path, version)]
    found = []
    for name, info in known_child_keys(cursor.path).items():
        if not release_has_key(info, version) or info.same_as:
            continue
        description = describe_key(".".join((*cursor.path, name)), info, version, language)
        found.append(
            CompletionEntry(name, f'"{name}": {_initial_value(info, version)}', description, bool(info.deprecated))
        )
    return sorted(found, key=lambda offer: (offer.deprecated, offer.label))


def word_at(text: str, cursor: Cursor) -> str:
    """The key at the cursor, without quotation marks."""
    return _unquote(text[cursor.start : cursor.end] or '""')


def key_documentation(path: tuple[str, ...], release: str, language: str) -> str:
    """The documentation of a key as Markdown; empty if DeepSpeed has no such key."""
    info = find_key_info(path)
    description = "" if info is None else describe_key(".".join(path), info, Version(release), language)
    return f"`{'.'.join(path)}` (DeepSpeed {release})\n\n{description}" if description else ""


def _possible_values(path: tuple[str, ...], version: Version) -> list[str]:
    if path in (("optimizer", "type"), ("scheduler", "type")):
        names = builtin_optimizers() if path[0] == "optimizer" else builtin_schedulers()
        return [json.dumps(_display_name(name)) for name, info in names.items() if release_has_key(info, version)]
    info = find_key_info(path)
    if info is None:
        return []
    if info.values:
        return [json.dumps(value) for value in info.values]
    if info.type == "bool":
        return ["true", "false", '"auto"']
    default = default_in_release(info, version)
    auto = ['"auto"'] if info.type in ("int", "float") else []
    return [json.dumps(default), *auto] if default is not None else auto


def _display_name(name: str) -> str:
    return {"adam": "Adam", "adamw": "AdamW", "adagrad": "Adagrad", "lamb": "Lamb", "lion": "Lion", "muon": "Muon"}.get(
        name, name
    )


def _initial_value(info: KeyInfo, version: Version) -> str:
    """The value inserted with a new key: its default if it has one."""
    if info.type == "object":
        return "{}"
    default = default_in_release(info, version)
    return json.dumps(default) if default is not None else '""' if info.type == "str" else "null"
