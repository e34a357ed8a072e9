"""What words come to: quotes, variables, parameter expansions, substitutions."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from gonogo.evidence.shell.arithmetic import evaluate
from gonogo.evidence.shell.state import State, Variable
from gonogo.evidence.shell.text import Piece, ShellWord, literal_pieces, reason_of, text_of, words_of
from gonogo.finding import Text

if TYPE_CHECKING:
    from gonogo.evidence.shell.run import Shell

_ALL_ARGUMENTS = Text("whatever arguments the script gets", "取决于脚本得到的参数")
NOT_EVALUATED = Text("`{text}` is known only when the script runs", "`{text}` 只有在脚本运行时才知道")
_DEEPEST = 24
_KEPT_DEPTH = 8
_EXPANSIONS = frozenset({"simple_expansion", "expansion", "command_substitution", "arithmetic_expansion"})
QUOTES = frozenset({"string", "raw_string", "ansi_c_string", "translated_string"})


def expand_words(shell: Shell, node: Any, state: State) -> list[ShellWord]:
    """The words that a word of a command comes to, after splitting."""
    place = shell.place(node)
    if node.type == "array":
        children = [child for child in node.named_children if child.type != "comment"]
        return [word for child in children for word in expand_words(shell, child, state)]
    array = _whole_array(shell, node, state)
    if array is not None:
        return array
    pieces = expand(shell, node, state, split=True)
    return words_of(pieces, place, quoted=_has_quotes(node))


def _has_quotes(node: Any) -> bool:
    return node.type in QUOTES or (
        node.type == "concatenation" and any(child.type in QUOTES for child in node.children)
    )


def _whole_array(shell: Shell, node: Any, state: State, *, in_quotes: bool = False) -> list[ShellWord] | None:
    """What ``"${ARGS[@]}"``, ``"$@"`` and their like come to; None where the word is none of these."""
    if node.type == "string":
        inside = node.named_children
        if len(inside) != 1 or node.end_byte - node.start_byte != inside[0].end_byte - inside[0].start_byte + 2:
            return None
        return _whole_array(shell, inside[0], state, in_quotes=True)
    text = shell.text(node)
    if in_quotes and "*" in text:
        return None  # "$*" and "${ARGS[*]}" are one word
    if text in ("$@", "$*", "${@}", "${*}", "${@:1}"):
        if state.arguments_given:
            return list(state.positional) if in_quotes else _split_again(state.positional)
        return [*state.positional, _unknown_word(shell, node, _ALL_ARGUMENTS)]
    if node.type != "expansion":
        return None
    subscript = next((child for child in node.named_children if child.type == "subscript"), None)
    if subscript is None or any(child.type == "#" or shell.text(child) in ("#", "!") for child in node.children[:2]):
        return None
    index = subscript.child_by_field_name("index")
    if index is None or shell.text(index) not in ("@", "*"):
        return None
    name = name_in(shell, subscript)
    variable = state.variables.get(name)
    if variable is None or variable.unset:
        return []
    if variable.array is None:
        return words_of(from_variable(shell, node, variable, split=False), shell.place(node), quoted=True)
    return list(variable.array) if in_quotes else _split_again(variable.array)


def _split_again(words: Sequence[ShellWord]) -> list[ShellWord]:
    """The words of an array that is expanded outside quotes."""
    found: list[ShellWord] = []
    for word in words:
        value = word.value
        if value is None or (value and not any(blank in value for blank in " \t\n")):
            found.append(word)
        else:
            pieces = [msgspec.structs.replace(piece, split=True) for piece in word.pieces]
            found += words_of(pieces, word.place, quoted=False)
    return found


def _unknown_word(shell: Shell, node: Any, reason: Text) -> ShellWord:
    place = shell.place(node)
    piece = Piece(None, place.source, place.start, place.end, many=True, reason=reason)
    return ShellWord((piece,), place)


def name_in(shell: Shell, node: Any) -> str:
    """The name inside ``${NAME…}``."""
    name = node.child_by_field_name("name")
    if name is None:
        name = next((c for c in node.named_children if c.type in ("variable_name", "special_variable_name")), None)
    return shell.text(name) if name is not None else ""


def expand(shell: Shell, node: Any, state: State, *, split: bool = False, depth: int = 0) -> list[Piece]:
    """The pieces of text that a node comes to. ``split``: blanks of expansions separate words."""
    kind = node.type
    if depth > _DEEPEST:
        return [unknown(shell, node)]
    if kind in ("word", "number", "variable_name", "extglob_pattern", "regex", "special_variable_name"):
        if kind in ("regex", "extglob_pattern", "number") and node.named_child_count:
            return _parts(shell, node, state, node.start_byte, node.end_byte, "", split, depth)
        pieces = literal_pieces(shell.source, node.start_byte, node.end_byte, "")
        return _with_home(pieces)
    if kind == "raw_string":
        return literal_pieces(shell.source, node.start_byte + 1, node.end_byte - 1, "\0")
    if kind == "string":
        return _parts(shell, node, state, node.start_byte + 1, node.end_byte - 1, '$`"\\', False, depth)
    if kind == "translated_string":
        return [piece for child in node.named_children for piece in expand(shell, child, state, depth=depth + 1)]
    if kind == "concatenation":
        pieces = _parts(shell, node, state, node.start_byte, node.end_byte, "", split, depth)
        return _with_home(pieces) if shell.source.data[node.start_byte : node.start_byte + 1] == b"~" else pieces
    if kind == "heredoc_body":
        return _parts(shell, node, state, node.start_byte, node.end_byte, "$`\\", False, depth)
    if kind in ("simple_expansion", "expansion"):
        from gonogo.evidence.shell.parameters import expand_variable

        return expand_variable(shell, node, state, split, depth)
    if kind == "ansi_c_string":
        return [_ansi_c(shell, node)]
    if kind == "command_substitution" and shell.text(node).startswith("$((") and shell.text(node).endswith("))"):
        # Inside ${…} the grammar takes arithmetic for a subshell.
        inner = shell.parsed_part(node.start_byte, node.end_byte)
        while inner is not None and inner.type != "arithmetic_expansion":
            inner = inner.named_children[0] if inner.named_child_count == 1 else None
        if inner is not None:
            return expand(shell, inner, state, split=split, depth=depth + 1)
    if kind == "command_substitution":
        printed = shell.substituted(node, state)
        if printed is None:
            return [msgspec.structs.replace(unknown(shell, node), many=split, split=split)]
        return [carried(shell, node, tuple(printed), split)]
    if kind == "arithmetic_expansion":
        number = evaluate(shell, node, state)
        if number is None:
            return [unknown(shell, node)]
        return [Piece(str(number), shell.source, node.start_byte, node.end_byte)]
    if kind in ("string_content", "heredoc_content"):
        return literal_pieces(shell.source, node.start_byte, node.end_byte, '$`"\\')
    return [unknown(shell, node)]


def _ansi_c(shell: Shell, node: Any) -> Piece:
    """``$'…'`` with the escapes that scripts use."""
    text = shell.text(node)[2:-1]
    if "\\" in text:
        for escape, character in (("\\n", "\n"), ("\\t", "\t"), ("\\'", "'"), ('\\"', '"')):
            text = text.replace(escape, character)
        if "\\" in text:
            return unknown(shell, node)
    return Piece(text, shell.source, node.start_byte, node.end_byte)


def unknown(shell: Shell, node: Any, reason: Text | None = None) -> Piece:
    """A text that can't be told."""
    shown = " ".join(shell.text(node).split())
    shown = shown if len(shown) <= 60 else shown[:59] + "…"
    return Piece(None, shell.source, node.start_byte, node.end_byte, reason=reason or NOT_EVALUATED.format(text=shown))


def _parts(
    shell: Shell, node: Any, state: State, start: int, end: int, escapes: str, split: bool, depth: int
) -> list[Piece]:
    """A node's children with the literal text between them, which the grammar leaves out in part."""
    pieces: list[Piece] = []
    position = start
    for child in node.named_children:
        if child.start_byte < position or child.end_byte > end:
            continue
        if child.type in ("string_content", "heredoc_content"):
            continue
        # In "$A $B" the grammar gives the blank to the second expansion.
        signs = [shell.source.data.find(sign, child.start_byte, child.end_byte) for sign in (b"$", b"`")]
        found = [sign for sign in signs if sign >= 0]
        begin = min(found) if found and child.type in _EXPANSIONS else child.start_byte
        pieces += literal_pieces(shell.source, position, begin, escapes)
        made = expand(shell, child, state, split=split, depth=depth + 1)
        if begin > child.start_byte:
            made = [msgspec.structs.replace(p, start=begin) if p.start == child.start_byte else p for p in made]
        pieces += made
        position = child.end_byte
    pieces += literal_pieces(shell.source, position, end, escapes)
    return pieces


def _with_home(pieces: list[Piece]) -> list[Piece]:
    """``~`` and ``~/…`` at a word's start are the home folder."""
    first = pieces[0] if pieces else None
    if first is not None and first.literal and first.text and (first.text == "~" or first.text.startswith("~/")):
        home = os.path.expanduser("~")
        return [msgspec.structs.replace(first, text=home + first.text[1:], literal=False), *pieces[1:]]
    return pieces


def carried(shell: Shell, node: Any, inner: tuple[Piece, ...], split: bool, reason: Text | None = None) -> Piece:
    """The value of a variable at the place where it is used."""
    text = text_of(inner)
    kept = inner if _depth(inner) < _KEPT_DEPTH else ()
    return Piece(
        text,
        shell.source,
        node.start_byte,
        node.end_byte,
        split=split,
        inner=kept,
        many=text is None and split and any(piece.many for piece in inner),
        reason=reason or reason_of(inner),
    )


def _depth(pieces: tuple[Piece, ...]) -> int:
    deepest = 0
    level: list[Piece] = list(pieces)
    while level and deepest <= _KEPT_DEPTH:
        level = [inner for piece in level[:64] for inner in piece.inner]
        deepest += 1
    return deepest


def from_variable(shell: Shell, node: Any, variable: Variable, *, split: bool) -> list[Piece]:
    """What a variable's name comes to: its text, or an array's first element."""
    if variable.array is not None:
        pieces = variable.array[0].pieces if variable.array else ()
        return [carried(shell, node, pieces, split)]
    return [carried(shell, node, variable.pieces, split)]
