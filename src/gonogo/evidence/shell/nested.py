"""Scripts inside words: ``bash -c '…'`` and ``eval …``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from gonogo.evidence.document.source_file import Place
from gonogo.evidence.shell.builtins import run_builtin
from gonogo.evidence.shell.expansion import NOT_EVALUATED
from gonogo.evidence.shell.state import UNSURE, State, Status
from gonogo.evidence.shell.text import Piece, ShellWord, words_of
from gonogo.finding import Text

if TYPE_CHECKING:
    from gonogo.evidence.shell.run import Shell


def run_text(shell: Shell, words: Sequence[ShellWord], state: State, place: Place) -> Status:
    """Follow the words as a script.

    A word that stands in the file as it is, is parsed where it stands; a text that variables make up is taken as one
    command whose words are parted by blanks.
    """
    if len(words) == 1:
        word = words[0]
        text = word.place.text
        if word.place.source is shell.source and len(text) > 2 and text[0] == text[-1] and text[0] in "'\"":
            root = shell.parsed_part(word.place.start + 1, word.place.end - 1)
            return shell.statements(root.children, state)
    split: list[ShellWord] = []
    for word in words:
        parts = [msgspec.structs.replace(piece, split=True) for piece in word.pieces]
        split += [_unquoted(made) for made in words_of(parts, word.place, quoted=False)]
    if not split or split[0].value is None:
        return UNSURE
    name = split[0].value
    if name != "eval":
        status = run_builtin(shell, name, split[1:], state, place)
        if status is not None:
            return status
    shell.record(split, {}, state, place)
    return UNSURE


def _expanded_later(pieces: Sequence[Piece], reason: Text) -> list[Piece]:
    """What the second reading expands can't be told."""
    return [
        msgspec.structs.replace(piece, text=None, reason=reason) if "$" in (piece.text or "") else piece
        for piece in pieces
    ]


def _unquoted(word: ShellWord) -> ShellWord:
    """A word without the quotes that the second reading takes off."""
    value = word.value
    if value is not None and "$" in value:
        reason = NOT_EVALUATED.format(text=value[:60])
        return msgspec.structs.replace(word, pieces=tuple(_expanded_later(word.pieces, reason)))
    if value is None or len(value) < 2 or value[0] != value[-1] or value[0] not in "'\"":
        return word
    place = word.place
    return ShellWord((Piece(value[1:-1], place.source, place.start, place.end),), place, True)
