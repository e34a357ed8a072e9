"""A report cut to what a model can read: its shape stays, long lists and long strings end early."""

from __future__ import annotations

import json
from typing import Any

LIMIT = 24_000
"""Characters of JSON that an answer has at most; the whole is a resource."""

_ROUNDS = ((60, 4000), (25, 1500), (12, 700), (6, 300), (3, 150), (1, 60))
"""Entries of a list, characters of a string: the first that makes it fit is taken."""


def cut(value: dict[str, Any], limit: int = LIMIT) -> tuple[dict[str, Any], bool]:
    """The object with at most ``limit`` characters of JSON, and whether anything is missing of it."""
    if _size(value) <= limit:
        return value, False
    for entries, characters in _ROUNDS:
        smaller = {key: _smaller(one, entries, characters) for key, one in value.items()}
        if _size(smaller) <= limit:
            return smaller, True
    kept = {key: one for key, one in smaller.items() if not isinstance(one, dict)}  # what was seen goes, findings stay
    return kept, True


def _smaller(value: Any, entries: int, characters: int) -> Any:
    if isinstance(value, str):
        return value if len(value) <= characters else f"{value[:characters]} […]"
    if isinstance(value, list):
        return [_smaller(one, entries, characters) for one in value[:entries]]
    if isinstance(value, dict):
        return {key: _smaller(one, entries, characters) for key, one in value.items()}
    return value


def _size(value: Any) -> int:
    return len(json.dumps(value, ensure_ascii=False))
