"""Tells library code from user code by the path of a stack frame."""

from __future__ import annotations

from gonogo.evidence.patterns import lazy_compile

_LIBRARY_PATH_PATTERN = lazy_compile(
    r"site-packages/|dist-packages/|/lib/python3|^<frozen|^<string>|\\lib\\|torch/csrc|/bin/[\w-]+$"
)


def is_library_path(path: str) -> bool:
    """Whether a path is in an installed package or in Python's own library."""
    return _LIBRARY_PATH_PATTERN.search(path) is not None
