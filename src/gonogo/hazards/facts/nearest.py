"""Finds the name most likely meant by a misspelled one."""

import os
from collections.abc import Iterable
from pathlib import Path

_MAX_NAMES = 400


def find_similar_name(name: str, known: Iterable[str], *, cutoff: float = 0.75) -> str | None:
    """The most similar known name, ignoring case, ``-`` and ``_``; None if none is similar enough."""
    from difflib import get_close_matches

    plain = {_normalize_name(one): one for one in known}
    found = get_close_matches(_normalize_name(name), plain, 1, cutoff)
    return plain[found[0]] if found else None


def _normalize_name(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")


def find_similar_file_name(path: Path, suffixes: tuple[str, ...]) -> str:
    """The most similar name, with one of the suffixes, in the folder of a file that is not there; empty if none is."""
    import difflib

    try:
        names = [entry.name for entry in os.scandir(path.parent)][:_MAX_NAMES]
    except (OSError, ValueError):
        return ""
    near = difflib.get_close_matches(path.name, [name for name in names if name.endswith(suffixes)], 1, 0.75)
    return near[0] if near else ""
