"""Text that a shell makes: pieces that know where they stand, and the words that they are split into."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase

import msgspec

from gonogo.evidence.source_file import Place, SourceFile
from gonogo.finding import Text

_MAX_LENGTH = 1 << 16
_BLANKS = " \t\n"


class Piece(msgspec.Struct, frozen=True):
    """Some text and the bytes that it comes from. ``text`` is None where it can't be told."""

    text: str | None
    source: SourceFile
    start: int
    end: int
    literal: bool = False
    """The bytes are the text: a part of the one is a part of the other."""
    split: bool = False
    """It came from an expansion outside quotes, so its blanks separate words."""
    inner: tuple[Piece, ...] = ()
    """What an expanded variable was set to."""
    many: bool = False
    """Unknown, and possibly no word or several (``$@``, an array)."""
    reason: Text | None = None

    @property
    def place(self) -> Place:
        """Where it stands."""
        return Place(self.source, self.start, self.end)


class ShellWord(msgspec.Struct, frozen=True):
    """One word of a command, after expansion. ``place`` is where it is written."""

    pieces: tuple[Piece, ...]
    place: Place
    quoted: bool = False
    """Some of it stood in quotes: it is a word also where it is empty."""

    @property
    def value(self) -> str | None:
        """The word, or None where it can't be told."""
        return text_of(self.pieces)

    @property
    def reason(self) -> Text | None:
        """Why it can't be told, or what was taken for it."""
        return reason_of(self.pieces)

    @property
    def many(self) -> bool:
        """Whether it may stand for no word or for several."""
        return any(piece.many for piece in self.pieces)


def text_of(pieces: Iterable[Piece]) -> str | None:
    """The text of pieces together; None where a part can't be told or it grows beyond all use."""
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


def reason_of(pieces: Iterable[Piece]) -> Text | None:
    """Why a text can't be told, else what was taken for a part of it."""
    taken = None
    for piece in pieces:
        if piece.text is None:
            return piece.reason
        taken = taken or piece.reason
    return taken


def words_of(pieces: Sequence[Piece], place: Place, *, quoted: bool) -> list[ShellWord]:
    """The words that one word of the source comes to after splitting; often one, sometimes none."""
    if not pieces and not quoted:
        return []
    if not any(piece.split for piece in pieces):
        return [ShellWord(tuple(pieces), place, quoted)]
    words: list[ShellWord] = []
    current: list[Piece] = []
    for atom in [*(atom for piece in pieces for atom in _atoms(piece, 0)), None]:
        if atom is not None:
            current.append(atom)
        elif current:
            words.append(ShellWord(tuple(current), _place_of(current), quoted))
            current = []
    if len(words) == 1:
        return [ShellWord(words[0].pieces, place, quoted)]
    return words or ([ShellWord((), place, True)] if quoted else [])


def _place_of(pieces: Sequence[Piece]) -> Place:
    first, last = pieces[0], pieces[-1]
    if first.source is last.source and first.start <= last.end:
        return Place(first.source, first.start, last.end)
    return first.place


def _atoms(piece: Piece, depth: int) -> list[Piece | None]:
    """The parts of a piece between its blanks; None is a gap between words."""
    if not piece.split:
        return [piece]
    if piece.text is None:
        # A text that is known in part: what is unknown in it is taken for a part of one word.
        within = [_atoms(msgspec.structs.replace(inner, split=True), depth + 1) for inner in piece.inner[:4096]]
        return [atom for atoms in within for atom in atoms] if depth < 20 and piece.inner else [piece]
    parts = piece.text.split()
    if len(parts) == 1 and piece.text == parts[0]:
        return [piece]
    if len(parts) > 1 and piece.inner and depth < 20:
        found: list[Piece | None] = []
        for inner in piece.inner:
            found += _atoms(msgspec.structs.replace(inner, split=True), depth + 1)
        return found
    atoms: list[Piece | None] = []
    position = 0
    text = piece.text
    while position < len(text):
        if text[position] in _BLANKS:
            if not atoms or atoms[-1] is not None:
                atoms.append(None)
            position += 1
            continue
        end = position
        while end < len(text) and text[end] not in _BLANKS:
            end += 1
        atoms.append(_part(piece, position, end))
        position = end
    return atoms


def _part(piece: Piece, start: int, end: int) -> Piece:
    text = piece.text or ""
    if not piece.literal:
        return msgspec.structs.replace(piece, text=text[start:end])
    first = piece.start + len(text[:start].encode("utf-8", "surrogateescape"))
    last = first + len(text[start:end].encode("utf-8", "surrogateescape"))
    return msgspec.structs.replace(piece, text=text[start:end], start=first, end=last)


def literal_pieces(source: SourceFile, start: int, end: int, escapes: str) -> list[Piece]:
    """Source text without its backslashes: before any character where ``escapes`` is empty, else only before those.

    A backslash and a line end go away together. ``escapes`` of ``"\\0"`` keeps every backslash, as single quotes do.
    """
    data = source.data
    pieces: list[Piece] = []
    begin = position = start

    def take(until: int) -> None:
        if until > begin:
            text = data[begin:until].decode("utf-8", "surrogateescape")
            pieces.append(Piece(text, source, begin, until, literal=True))

    while escapes != "\0":
        position = data.find(b"\\", position, end)
        if position < 0 or position + 1 >= end:
            break
        following = chr(data[position + 1])
        if following == "\n" or data[position + 1 : position + 3] == b"\r\n":
            take(position)
            begin = position = position + (2 if following == "\n" else 3)
        elif not escapes or following in escapes:
            take(position)
            begin = position + 1
            position += 2
        else:
            position += 2
    take(end)
    return pieces


def changed_text(operator: str, text: str, argument: str | None) -> str | None:
    """``${X%suffix}``, ``${X##prefix}``, ``${X/a/b}``, ``${X^^}``, ``${X:from:length}``."""
    if operator in ("^^", ",,", "^", ","):
        change: Callable[[str], str] = str.upper if "^" in operator else str.lower
        return change(text) if len(operator) == 2 else change(text[:1]) + text[1:]
    if argument is None or len(text) > 1024:
        return None
    if operator in ("%", "%%"):
        cuts = range(len(text), -1, -1) if operator == "%" else range(len(text) + 1)
        return next((text[:cut] for cut in cuts if fnmatchcase(text[cut:], argument)), text)
    if operator in ("#", "##"):
        cuts = range(len(text) + 1) if operator == "#" else range(len(text), -1, -1)
        return next((text[cut:] for cut in cuts if fnmatchcase(text[:cut], argument)), text)
    if operator in ("/", "//"):
        old, _, new = argument.partition("/")
        if not old or any(character in old for character in "*?["):
            return None
        return text.replace(old, new, -1 if operator == "//" else 1)
    if operator == ":":
        numbers = argument.split(":")
        if not all(number.strip().lstrip("-").isdigit() for number in numbers) or len(numbers) > 2:
            return None
        start = int(numbers[0])
        cut = text[start:]
        if len(numbers) == 1:
            return cut
        length = int(numbers[1])
        return cut[:length]
    return None
