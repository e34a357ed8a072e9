"""Whose code a frame of a stack is, by its path."""

from __future__ import annotations

from gonogo.evidence.patterns import compiled_when_used

_LIBRARY = compiled_when_used(
    r"site-packages/|dist-packages/|/lib/python3|^<frozen|^<string>|\\lib\\|torch/csrc|/bin/[\w-]+$"
)


def is_library(path: str) -> bool:
    """True for a path of an installed package or Python's own library."""
    return _LIBRARY.search(path) is not None
