"""What words come to: quotes, ``$X``, ``${X:-8}``, ``${X%.json}``, ``${ARRAY[0]}``, ``${#X}``, substitutions."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import msgspec

from gonogo.evidence.shell.arithmetic import evaluate
from gonogo.evidence.shell.pieces import ansi_c, carried, from_variable, name_in, unknown, unknown_word
from gonogo.evidence.shell.reading import Reading
from gonogo.evidence.shell.state import NOT_SET, State, Variable
from gonogo.evidence.shell.text import Piece, ShellWord, changed_text, literal_pieces, reason_of, text_of, words_of
from gonogo.finding import Text

_ALL_ARGUMENTS = Text("the arguments that the script gets", "取决于脚本得到的参数")
_DEFAULT = Text("default value of `{text}`", "取 `{text}` 的默认值")
_ARGUMENT = Text("the script's argument `${name}` is not given", "没有给出脚本的参数 `${name}`")
_MAX_DEPTH = 24
_EXPANSIONS = frozenset({"simple_expansion", "expansion", "command_substitution", "arithmetic_expansion"})
QUOTES = frozenset({"string", "raw_string", "ansi_c_string", "translated_string"})


def expand_words(shell: Reading, node: Any, state: State) -> list[ShellWord]:
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


def _whole_array(shell: Reading, node: Any, state: State, *, in_quotes: bool = False) -> list[ShellWord] | None:
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
        return [*state.positional, unknown_word(shell, node, _ALL_ARGUMENTS)]
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


def expand(shell: Reading, node: Any, state: State, *, split: bool = False, depth: int = 0) -> list[Piece]:
    """The pieces of text that a node comes to. ``split``: blanks of expansions separate words."""
    kind = node.type
    if depth > _MAX_DEPTH:
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
        return expand_variable(shell, node, state, split, depth)
    if kind == "ansi_c_string":
        return [ansi_c(shell, node)]
    if kind == "command_substitution" and shell.text(node).startswith("$((") and shell.text(node).endswith("))"):
        # Inside ${…} the grammar takes arithmetic for a subshell.
        inner = shell.parsed_part(node.start_byte, node.end_byte)
        while inner is not None and inner.type != "arithmetic_expansion":
            inner = inner.named_children[0] if inner.named_child_count == 1 else None
        if inner is not None:
            return expand(shell, inner, state, split=split, depth=depth + 1)
    if kind == "command_substitution":
        printed = shell.printed(shell, node, state)
        if printed is None:
            return [msgspec.structs.replace(unknown(shell, node), many=split, split=split)]
        return [carried(shell, node, tuple(printed), split)]
    if kind == "arithmetic_expansion":
        number = number_of(shell, node, state)
        if number is None:
            return [unknown(shell, node)]
        return [Piece(str(number), shell.source, node.start_byte, node.end_byte)]
    if kind in ("string_content", "heredoc_content"):
        return literal_pieces(shell.source, node.start_byte, node.end_byte, '$`"\\')
    return [unknown(shell, node)]


def _parts(
    shell: Reading, node: Any, state: State, start: int, end: int, escapes: str, split: bool, depth: int
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


def number_of(shell: Reading, node: Any, state: State) -> int | None:
    """The whole number that an arithmetic node comes to; None where it can't be told."""

    def value(inner: Any, depth: int) -> str | None:
        if inner.type == "variable_name":
            found, _assumed = look_up(shell, inner, shell.text(inner), state, split=False)
        else:
            found = expand(shell, inner, state, depth=depth)
        return text_of(found) if found is not None else None

    return evaluate(node, shell.text, value)


def look_up(shell: Reading, node: Any, name: str, state: State, *, split: bool) -> tuple[list[Piece] | None, bool]:
    """What ``$name`` comes to (None: not set), and whether that rests on what the caller leaves unset."""
    if name.isdigit() or name in ("@", "*", "#"):
        return _positional(shell, node, name, state, split=split)
    variable = state.variables.get(name)
    if variable is not None:
        return (None, False) if variable.unset else (from_variable(shell, node, variable, split=split), False)
    text, reason = shell.special(name, state)
    if text is not None:
        return [Piece(text, shell.source, node.start_byte, node.end_byte, split=split, reason=reason)], False
    if reason is not None:
        return [unknown(shell, node, reason)], False
    return None, True


def _positional(shell: Reading, node: Any, name: str, state: State, *, split: bool) -> tuple[list[Piece] | None, bool]:
    assumed = not state.arguments_given
    if name == "0":
        return [Piece(shell.script_name, shell.source, node.start_byte, node.end_byte)], False
    if name == "#":
        return [Piece(str(len(state.positional)), shell.source, node.start_byte, node.end_byte)], assumed
    if name in ("@", "*"):
        if not state.positional:
            return None, assumed
        joined: list[Piece] = []
        for word in state.positional:
            if joined:
                joined.append(Piece(" ", shell.source, node.start_byte, node.end_byte))
            joined += word.pieces
        return [carried(shell, node, tuple(joined), split)], assumed
    index = int(name) if len(name) < 6 else 1 << 20
    if 1 <= index <= len(state.positional):
        return [carried(shell, node, state.positional[index - 1].pieces, split)], False
    return None, assumed


def expand_variable(shell: Reading, node: Any, state: State, split: bool, depth: int) -> list[Piece]:
    """``$X`` and ``${X…}``."""
    children = node.children
    if node.type == "simple_expansion":
        name = shell.text(children[1]) if len(children) > 1 else ""
        found, assumed = look_up(shell, node, name, state, split=split)
        return _or_not_set(shell, node, name, found, assumed, split)
    inside = [child for child in children if child.type not in ("${", "}")]
    if not inside:
        return [unknown(shell, node)]
    first = inside[0]
    if not first.is_named or first.type in ("#", "!"):
        return [_length(shell, node, inside, state) if shell.text(first) == "#" else unknown(shell, node)]
    if first.type == "subscript":
        name = name_in(shell, first)
        found, assumed = _element(shell, node, first, state, split)
    else:
        name = shell.text(first)
        found, assumed = look_up(shell, node, name, state, split=split)
    if len(inside) == 1:
        return _or_not_set(shell, node, name, found, assumed, split)
    operator = shell.text(inside[1])
    return _operated(shell, node, state, (name, operator, inside[2:]), found, assumed, split, depth)


def _or_not_set(
    shell: Reading, node: Any, name: str, found: list[Piece] | None, assumed: bool, split: bool
) -> list[Piece]:
    if found is not None:
        return found
    if not assumed:
        return [Piece("", shell.source, node.start_byte, node.end_byte, split=split)]
    reason = (_ARGUMENT if name.isdigit() else NOT_SET).format(name=name)
    return [msgspec.structs.replace(unknown(shell, node, reason), split=split)]


def _element(shell: Reading, node: Any, subscript: Any, state: State, split: bool) -> tuple[list[Piece] | None, bool]:
    name, index = name_in(shell, subscript), subscript.child_by_field_name("index")
    if name == "BASH_SOURCE":
        return [Piece(shell.script_name, shell.source, node.start_byte, node.end_byte)], False
    variable = state.variables.get(name)
    if variable is None or index is None:
        return None, True
    where = shell.text(index)
    if where in ("@", "*"):
        words = variable.array if variable.array is not None else (ShellWord(variable.pieces, shell.place(node)),)
        joined: list[Piece] = []
        for word in words:
            if joined:
                joined.append(Piece(" ", shell.source, node.start_byte, node.end_byte))
            joined += word.pieces
        return [carried(shell, node, tuple(joined), split)], False
    number = number_of(shell, index, state)
    if number is None or variable.array is None:
        return ([unknown(shell, node)], False) if number != 0 else look_up(shell, node, name, state, split=split)
    if any(word.many for word in variable.array):
        return [unknown(shell, node)], False
    if -len(variable.array) <= number < len(variable.array):
        return [carried(shell, node, variable.array[number].pieces, split)], False
    return None, False


def _length(shell: Reading, node: Any, inside: list[Any], state: State) -> Piece:
    """``${#X}`` and ``${#ARRAY[@]}``."""
    what = inside[1] if len(inside) > 1 else None
    count: int | None = None
    if what is not None and what.type == "subscript":
        variable = state.variables.get(name_in(shell, what))
        if variable is not None and variable.array is not None and not any(word.many for word in variable.array):
            count = len(variable.array)
    elif what is not None:
        found, _assumed = look_up(shell, node, shell.text(what), state, split=False)
        text = text_of(found) if found else None
        count = len(text) if text is not None else None
    return (
        Piece(str(count), shell.source, node.start_byte, node.end_byte) if count is not None else unknown(shell, node)
    )


def _operated(
    shell: Reading,
    node: Any,
    state: State,
    parts: tuple[str, str, list[Any]],
    found: list[Piece] | None,
    assumed: bool,
    split: bool,
    depth: int,
) -> list[Piece]:
    name, operator, rest = parts
    text = text_of(found) if found is not None else ""
    with_colon = operator.startswith(":")
    is_set = found is not None and not (with_colon and text == "")
    if operator in (":-", "-", ":=", "="):
        if found is not None and text is None and with_colon:
            return found
        if is_set and found is not None:
            return found
        word = _rest(shell, node, rest, state, depth)
        reason = _DEFAULT.format(text=shell.text(node)) if assumed else None
        if operator in (":=", "="):
            state.set(name, Variable(tuple(word), shell.place(node)))
        split = split and not any(child.type in QUOTES for child in rest)
        return [carried(shell, node, tuple(word), split, reason if text_of(word) is not None else None)]
    if operator in (":+", "+"):
        return _rest(shell, node, rest, state, depth) if is_set else []
    if operator in (":?", "?"):
        return _or_not_set(shell, node, name, found, assumed, split)
    if found is None or text is None:
        return _or_not_set(shell, node, name, found, assumed, split)
    argument = text_of(_rest(shell, node, rest, state, depth))
    changed = changed_text(operator, text, argument)
    if changed is None:
        return [unknown(shell, node)]
    return [Piece(changed, shell.source, node.start_byte, node.end_byte, split=split, reason=reason_of(found))]


def _rest(shell: Reading, node: Any, rest: list[Any], state: State, depth: int) -> list[Piece]:
    """What stands after an operator, up to the closing brace."""
    end = node.end_byte - 1
    if not rest:
        return []
    pieces: list[Piece] = []
    position = rest[0].start_byte
    for child in rest:
        pieces += literal_pieces(shell.source, position, child.start_byte, "")
        if child.is_named:
            pieces += expand(shell, child, state, depth=depth + 1)
        else:
            pieces += literal_pieces(shell.source, child.start_byte, child.end_byte, "")
        position = child.end_byte
    return pieces + literal_pieces(shell.source, position, end, "")
