"""Creates the pieces of text to which nodes of a shell script expand."""

from __future__ import annotations

from typing import Any

from gonogo.evidence.shell.reading import ShellReader
from gonogo.evidence.shell.state import Variable
from gonogo.evidence.shell.text import Piece, ShellWord, joined_text, reason_of_pieces
from gonogo.finding import Text, translated

NOT_EVALUATED = translated("`{text}` is known only when the script runs")
_MAX_DEPTH = 8


def unknown_word(shell: ShellReader, node: Any, reason: Text) -> ShellWord:
    """An unknown word, which may stand for none or several."""
    place = shell.place(node)
    piece = Piece(None, place.source, place.start, place.end, many=True, reason=reason)
    return ShellWord((piece,), place)


def unknown_piece(shell: ShellReader, node: Any, reason: Text | None = None) -> Piece:
    """An unknown text."""
    shown = " ".join(shell.text(node).split())
    shown = shown if len(shown) <= 60 else shown[:59] + "…"
    return Piece(None, shell.source, node.start_byte, node.end_byte, reason=reason or NOT_EVALUATED.format(text=shown))


def piece_placed_at_use(
    shell: ShellReader, node: Any, inner: tuple[Piece, ...], split: bool, reason: Text | None = None
) -> Piece:
    """The value of a variable, with the place where the variable is used."""
    text = joined_text(inner)
    kept = inner if _nesting_depth(inner) < _MAX_DEPTH else ()
    return Piece(
        text,
        shell.source,
        node.start_byte,
        node.end_byte,
        split=split,
        inner=kept,
        many=text is None and split and any(piece.many for piece in inner),
        reason=reason or reason_of_pieces(inner),
    )


def _nesting_depth(pieces: tuple[Piece, ...]) -> int:
    """How deeply pieces contain the pieces of other variables' values."""
    deepest = 0
    level: list[Piece] = list(pieces)
    while level and deepest <= _MAX_DEPTH:
        level = [inner for piece in level[:64] for inner in piece.inner]
        deepest += 1
    return deepest


def pieces_of_variable(shell: ShellReader, node: Any, variable: Variable, *, split: bool) -> list[Piece]:
    """The value of ``$NAME``: the variable's text, or an array's first element."""
    if variable.array is not None:
        pieces = variable.array[0].pieces if variable.array else ()
        return [piece_placed_at_use(shell, node, pieces, split)]
    return [piece_placed_at_use(shell, node, variable.pieces, split)]
