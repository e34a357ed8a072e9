"""Finds the name most likely meant by a misspelled one."""

from collections.abc import Iterable


def nearest(name: str, known: Iterable[str], *, cutoff: float = 0.75) -> str | None:
    """The most similar known name, ignoring case, ``-`` and ``_``; None if none is similar enough."""
    from difflib import get_close_matches

    plain = {_normalize(one): one for one in known}
    found = get_close_matches(_normalize(name), plain, 1, cutoff)
    return plain[found[0]] if found else None


def _normalize(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")
