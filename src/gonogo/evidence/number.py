"""Whole numbers as files and command lines write them."""

from __future__ import annotations


def parse_whole_number(text: str | None) -> int | None:
    """Parse a non-negative integer; None for anything else, or if it has more digits than 64 bits hold."""
    text = (text or "").strip()
    return int(text) if text.isdecimal() and len(text) <= 18 else None
