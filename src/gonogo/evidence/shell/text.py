"""Text produced by a shell: pieces that carry their places, and the words into which they are split."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise

import msgspec

from gonogo.evidence.source_file import Place, SourceFile
from gonogo.finding import Text

_MAX_LENGTH = 1 << 16
_WHITESPACE = " \t\n"


class Piece(msgspec.Struct, frozen=True):
    """A part of an expanded word, and the bytes that it comes from. ``text`` is None if unknown."""

    text: str | None
    source: SourceFile
    start: int
    end: int
    literal: bool = False
    """True if the text equals the source bytes, so that parts of both correspond."""
    split: bool = False
    """True if it comes from an unquoted expansion, so that its blanks separate words."""
    inner: tuple[Piece, ...] = ()
    """The pieces of an expanded variable's value."""
    many: bool = False
    """True if it is unknown and may stand for no word or for several (``$@``, an array)."""
    reason: Text | None = None
    program: str = ""
    """``which NAME``: it is the path of that program, wherever it is installed."""
    quoted: bool = False
    """True if it was quoted: it makes a word even if empty, and its characters aren't globs."""
    variable: str = ""
    """If it is unknown because the caller sets a variable: that variable's name."""
    folder: str = ""
    """If it is unknown because it is the working folder: that folder if the script is started in its own."""

    @property
    def place(self) -> Place:
        """Its span in the source."""
        return Place(self.source, self.start, self.end)


class ShellWord(msgspec.Struct, frozen=True):
    """One word of a command, after expansion. ``place`` is its span in the source."""

    pieces: tuple[Piece, ...]
    place: Place
    quoted: bool = False
    """True if a part of it was quoted, so that it is a word even if empty."""

    @property
    def value(self) -> str | None:
        """The word, or None if unknown."""
        return joined_text(self.pieces)

    @property
    def reason(self) -> Text | None:
        """Why it is unknown, or what was assumed for it."""
        return reason_of_pieces(self.pieces)

    @property
    def program(self) -> str:
        """The program whose path it is, if it comes from ``which``; else empty."""
        return self.pieces[0].program if len(self.pieces) == 1 else ""

    @property
    def may_split(self) -> bool:
        """Whether it may expand to no word, or to several."""
        return any(piece.many for piece in self.pieces)


def joined_text(pieces: Iterable[Piece]) -> str | None:
    """The concatenated text of pieces; None if a part is unknown, or the text is too long to be useful."""
    parts = []
    size = 0
    for piece in pieces:
        if piece.text is None:
            return None
        parts.append(piece.text)
        size += len(piece.text)
        if size > _MAX_LENGTH:
            return None
    return "".join(parts)


def reason_of_pieces(pieces: Iterable[Piece]) -> Text | None:
    """Why a text is unknown, else what was assumed for a part of it."""
    taken = None
    for piece in pieces:
        if piece.text is None:
            return piece.reason
        taken = taken or piece.reason
    return taken


def split_into_words(
    items: Sequence[Piece | None], place: Place, *, quoted: bool = False, separators: str = _WHITESPACE
) -> list[ShellWord]:
    """The words that one word of the source yields after splitting; often one, sometimes none.

    None among the items marks a certain word boundary, as between the elements of ``"$@"``.
    """
    if not any(item is None or item.split for item in items):
        pieces = tuple(item for item in items if item is not None)
        there = quoted or any(piece.quoted or piece.text is None or piece.text for piece in pieces)
        return [ShellWord(pieces, place, quoted or any(piece.quoted for piece in pieces))] if there else []
    words: list[ShellWord] = []
    current: list[Piece] = []

    def end_word(*, include_empty: bool = False) -> None:
        if include_empty or any(piece.quoted or piece.text is None or piece.text for piece in current):
            there = tuple(current)
            words.append(ShellWord(there, _place_of(there, place), quoted or any(piece.quoted for piece in there)))
        current.clear()

    for item in items:
        if item is None:
            end_word()
            continue
        for atom in _split_piece(item, 0, separators):
            if isinstance(atom, Piece):
                current.append(atom)
            else:
                end_word(include_empty=atom)
    end_word()
    if len(words) == 1:
        return [ShellWord(words[0].pieces, place, words[0].quoted)]
    return words or ([ShellWord((), place, True)] if quoted else [])


def _place_of(pieces: Sequence[Piece], word_place: Place) -> Place:
    if not pieces:
        return word_place
    first, last = pieces[0], pieces[-1]
    if first.source is last.source and first.start <= last.end:
        return Place(first.source, first.start, last.end)
    return first.place


def _split_piece(piece: Piece, depth: int, separators: str) -> list[Piece | bool]:
    """The parts of a piece, split at separators.

    False stands for a gap of blanks; True for a separator that isn't blank (``IFS=,``): two in a row enclose an empty
    word.
    """
    if not piece.split:
        return [piece]
    if piece.text is None:
        # A partially known text: its unknown part is assumed to be part of one word.
        within = [
            _split_piece(msgspec.structs.replace(inner, split=True, quoted=False), depth + 1, separators)
            for inner in piece.inner[:4096]
        ]
        return [atom for atoms in within for atom in atoms] if depth < 20 and piece.inner else [piece]
    text = piece.text
    if frozenset(separators).isdisjoint(text):
        return [piece]
    blanks = "".join(character for character in separators if character in _WHITESPACE)
    if piece.inner and depth < 20 and len(text.split()) > 1 and separators == _WHITESPACE:
        found: list[Piece | bool] = []
        for inner in piece.inner:
            found += _split_piece(msgspec.structs.replace(inner, split=True, quoted=False), depth + 1, separators)
        return found
    atoms: list[Piece | bool] = []
    position = 0
    while position < len(text):
        if text[position] in separators:
            hard = False
            while position < len(text) and text[position] in separators:
                if text[position] not in blanks:
                    if hard:
                        break
                    hard = True
                position += 1
            atoms.append(hard)
            continue
        end = position
        while end < len(text) and text[end] not in separators:
            end += 1
        atoms.append(_slice_piece(piece, position, end))
        position = end
    return atoms


def _slice_piece(piece: Piece, start: int, end: int) -> Piece:
    text = piece.text or ""
    if not piece.literal:
        return msgspec.structs.replace(piece, text=text[start:end])
    first = piece.start + len(text[:start].encode("utf-8", "surrogateescape"))
    last = first + len(text[start:end].encode("utf-8", "surrogateescape"))
    return msgspec.structs.replace(piece, text=text[start:end], start=first, end=last)


_STAR = ".*"


def glob_to_regex(pattern: Sequence[tuple[str, bool]]) -> str:
    """A regular expression for a shell pattern, given as texts and whether each is quoted.

    It matches whole texts, in linear time: what a star has matched is not tried again.
    """
    cells = glob_regex_parts(pattern)
    stars = [index for index, cell in enumerate(cells) if cell is _STAR]
    found: list[str] = cells[: stars[0]] if stars else list(cells)
    for number, (start, end) in enumerate(pairwise([*stars, len(cells)])):
        fixed = "".join(cells[start + 1 : end])
        if end == len(cells):
            found.append(f".*{fixed}")
        elif fixed:
            found.append(f"(?=(?P<g{number}>.*?{fixed}))(?P=g{number})")
    return "".join(found)


def glob_regex_parts(pattern: Sequence[tuple[str, bool]]) -> list[str]:
    """The regular expressions of a shell pattern's parts; each star is a part of its own."""
    cells = [(character, quoted) for text, quoted in pattern for character in text]
    found: list[str] = []
    at = 0
    last_close = max((index for index, cell in enumerate(cells) if cell == ("]", False)), default=-1)
    while at < len(cells):
        character, quoted = cells[at]
        at += 1
        if quoted or character not in "*?[\\":
            found.append(re.escape(character))
        elif character == "*":
            found.append(_STAR)
        elif character == "?":
            found.append(".")
        elif character == "\\":
            if at < len(cells):
                found.append(re.escape(cells[at][0]))
                at += 1
        else:
            close = at + 1 if at < len(cells) and cells[at][0] in "!^" else at
            close = close + 1 if close < len(cells) and cells[close][0] == "]" else close
            if close > last_close:
                found.append("\\[")
                continue
            while cells[close] != ("]", False):
                close += 1
            inside = "".join(re.escape(each) if each != "-" else each for each, _ in cells[at:close])
            negated = inside.startswith(("!", "\\!", "^", "\\^"))
            inside = inside.lstrip("\\")[1:] if negated else inside
            found.append(f"[{'^' if negated else ''}{inside}]")
            at = close + 1
    return found


def matches_whole_text(pattern: str, text: str) -> bool:
    """Whether a regular expression of :func:`glob_to_regex` matches the whole text."""
    try:
        return re.fullmatch(pattern, text, re.DOTALL) is not None
    except re.error:
        return False


def remove_match(operator: str, text: str, pattern: str) -> str:
    """``${X%suffix}``, ``${X##prefix}`` and the like."""
    cuts = range(len(text) + 1) if operator in ("%%", "#") else range(len(text), -1, -1)
    if operator in ("%", "%%"):
        return next((text[:cut] for cut in cuts if matches_whole_text(pattern, text[cut:])), text)
    return next((text[cut:] for cut in cuts if matches_whole_text(pattern, text[:cut])), text)


def change_case(operator: str, text: str) -> str:
    """``${X^^}``, ``${X,}`` and the like."""
    changed = str.upper if "^" in operator else str.lower
    return changed(text) if len(operator) == 2 else changed(text[:1]) + text[1:]
