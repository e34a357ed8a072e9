"""A conservative token count, which the tokenizers of common language models don't exceed."""

from __future__ import annotations

import re

_TOKEN_PART_PATTERN = re.compile(r"[A-Za-z]+|[0-9]|[^\sA-Za-z0-9]|\n|[ \t]+(?=[ \t])")
_LETTERS_PER_TOKEN = 4


def count_tokens(text: str) -> int:
    """An upper bound of a text's tokens: one per four letters of a word (rounded up), digit, and other character.

    A line ending counts as one, and so does a run of spaces; a symbol outside ASCII counts as two.
    ``benchmarks/pack.py`` compares it with real tokenizers.
    """
    count = 0
    for part in _TOKEN_PART_PATTERN.findall(text):
        if part[0].isascii():
            count += -(-len(part) // _LETTERS_PER_TOKEN) if part[0].isalpha() else 1
        else:
            count += 2
    return count
