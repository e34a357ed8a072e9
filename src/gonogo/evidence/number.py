"""Whole numbers as files and command lines write them."""

from __future__ import annotations


def parse_whole_number(text: str | None) -> int | None:
    """The number that the text is; None where it is none, is negative, or has more digits than 64 bits hold."""
    text = (text or "").strip()
    return int(text) if text.isdecimal() and len(text) <= 18 else None
