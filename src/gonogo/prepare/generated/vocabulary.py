"""An untrained vocabulary: all short strings of letters, padded with fillers to the published size.

One or two letters, with or without a preceding space, are one token; three are if there is room. English text then
has about three characters per token, against four with published tokenizers; statements about lengths rely on that.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import cache
from string import ascii_letters, ascii_lowercase

from gonogo.evidence.published.models import TokenizerLayout

_IDEOGRAPHS = range(0x4E00, 0x9FA6)
_MIN_SIZE_FOR_IDEOGRAPHS = 90_000
_MIN_SIZE_FOR_ALL_TRIPLES = 48_000

Merge = tuple[str, str]


@cache
def byte_characters() -> tuple[str, ...]:
    """GPT-2's byte-to-unicode table, as the character for each byte."""
    printable = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
    others = iter(range(256, 512))
    return tuple(chr(byte) if byte in printable else chr(next(others)) for byte in range(256))


def _letter_merges(space: str, size: int) -> Iterator[Merge]:
    """Merges to two letters, with a preceding space and without, and to three."""
    pairs = ["".join(pair) for pair in itertools.product(ascii_lowercase, repeat=2)]
    yield from ((pair[0], pair[1]) for pair in pairs)
    yield from ((space, pair) for pair in pairs)
    yield from ((space, letter) for letter in ascii_letters)  # an answer of one letter is one token
    yield from ((pair, letter) for pair in pairs for letter in ascii_lowercase)
    if size > _MIN_SIZE_FOR_ALL_TRIPLES:
        yield from ((space + pair, letter) for pair in pairs for letter in ascii_lowercase)


def _ideograph_merges() -> Iterator[Merge]:
    """Merges of the bytes of Chinese characters."""
    characters = byte_characters()
    seen: set[str] = set()
    for code in _IDEOGRAPHS:
        first, second, third = (characters[byte] for byte in chr(code).encode())
        if first + second not in seen:
            seen.add(first + second)
            yield first, second
        yield first + second, third


def merges_for_layout(layout: TokenizerLayout) -> tuple[list[str], list[Merge]]:
    """The initial tokens and the merges, as many as the layout's size allows."""
    if layout.kind == "pieces":
        singles = [f"<0x{byte:02X}>" for byte in range(256)]
        singles += ["▁", *(chr(code) for code in range(0x21, 0x7F))]
        if layout.size > _MIN_SIZE_FOR_ALL_TRIPLES:
            singles += [chr(code) for code in _IDEOGRAPHS]
        made = list(_letter_merges("▁", layout.size))
    else:
        singles = list(byte_characters())
        if layout.kind == "clip":
            singles += [f"{character}</w>" for character in singles]
            made = [(first, second + end) for first, second in itertools.product(ascii_lowercase, repeat=2)
                    for end in ("", "</w>")]  # fmt: skip
        else:
            made = list(_letter_merges(byte_characters()[0x20], layout.size))
            if layout.size > _MIN_SIZE_FOR_IDEOGRAPHS:
                made += _ideograph_merges()
    room = layout.size - len(layout.special_tokens()) - len(singles)
    return singles, made[: max(0, room)]


def word_tokens(layout: TokenizerLayout) -> list[str]:
    """The tokens of a WordPiece or Unigram vocabulary: letters and pairs, at the start of a word and inside."""
    pairs = ["".join(pair) for pair in itertools.product(ascii_lowercase, repeat=2)]
    if layout.kind == "words":
        single = [chr(code) for code in range(0x21, 0x7F)]
        pieces = [*single, *(f"##{one}" for one in single), *pairs, *(f"##{pair}" for pair in pairs)]
        return [*pieces, *(chr(code) for code in _IDEOGRAPHS)]  # the caller takes as many as fit
    single = ["▁", *(chr(code) for code in range(0x21, 0x7F))]
    return [*single, *pairs, *(f"▁{pair}" for pair in pairs), *(f"▁{letter}" for letter in ascii_letters)]


def tokens_by_id(layout: TokenizerLayout, regular_tokens: list[str]) -> list[str]:
    """All tokens in the order of their ids: special ones at their published ids, fillers if there are too few."""
    special = layout.special_tokens()
    taken = set(special.values())
    rest = (token for token in dict.fromkeys(regular_tokens) if token not in taken)
    return [special[number] if number in special else next(rest, f"<filler{number}>") for number in range(layout.size)]
