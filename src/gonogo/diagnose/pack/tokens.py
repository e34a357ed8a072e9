"""How many tokens of a language model a text has, counted so that no usual tokenizer makes more of it."""

from __future__ import annotations

import re

_TOKEN_PART_PATTERN = re.compile(r"[A-Za-z]+|[0-9]|[^\sA-Za-z0-9]|\n|[ \t]+(?=[ \t])")
_LETTERS_PER_TOKEN = 4


def count_tokens(text: str) -> int:
    """At least the tokens of a text: one for each four letters of a word (rounded up), each digit, each other sign.

    A line's end counts one, and so does a run of blanks; a sign outside of ASCII counts two. ``benchmarks/pack.py``
    compares it with real tokenizers.
    """
    count = 0
    for part in _TOKEN_PART_PATTERN.findall(text):
        if part[0].isascii():
            count += -(-len(part) // _LETTERS_PER_TOKEN) if part[0].isalpha() else 1
        else:
            count += 2
    return count
