"""Word expansion: quotes, ``$X``, ``${X:-8}``, ``${X%.json}``, ``${ARRAY[0]}``, substitutions, globs."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Sequence
from typing import Any

import msgspec

from gonogo.evidence.shell.arithmetic import evaluate
from gonogo.evidence.shell.lexer import (
    Arithmetic,
    Lexer,
    Literal,
    Parameter,
    ShellAssignment,
    Substitution,
    SyntaxWord,
    WordPart,
    expand_braces,
    plain_text,
)
from gonogo.evidence.shell.pieces import piece_placed_at_use, pieces_of_variable, unknown_piece, unknown_word
from gonogo.evidence.shell.reading import ShellReader
from gonogo.evidence.shell.state import NOT_SET, State, Variable
from gonogo.evidence.shell.text import (
    Piece,
    ShellWord,
    change_case,
    glob_regex_parts,
    glob_to_regex,
    joined_text,
    reason_of_pieces,
    remove_match,
    split_into_words,
)
from gonogo.finding import Text, translated

_ALL_ARGUMENTS_REASON = translated("the arguments given to the script")
_DEFAULT_VALUE_REASON = translated("default value of `{text}`")
_SCRIPT_ARGUMENT_MISSING = translated("the script's argument `${name}` is not given")
_GLOB_REASON = translated("`{text}` expands to whichever files exist at that time")
_MAX_DEPTH = 24
_MAX_TEXT_LENGTH = 1024
_GLOB_CHARACTER_PATTERN = re.compile(r"[*?[]")
# Longer patterns aren't matched: a path has 4,096 bytes at most, and for each unclosed bracket
# fnmatch scans to the pattern's end.
_MAX_PATTERN_LENGTH = 4096
_MAX_PATTERN_BRACKETS = 64
_UNSUPPORTED_GLOB_OPTIONS = frozenset({"failglob", "dotglob", "globstar", "extglob", "nocaseglob"})

ExpandedItems = list[Piece | None]
"""Pieces of words; None marks a certain word boundary."""


class _ParameterValues(msgspec.Struct):
    """The values of ``$NAME`` or ``${NAME[@]}`` before an operator is applied."""

    elements: list[tuple[Piece, ...]] | None
    """None if the variable is not set."""
    whole: str = ""
    """``@`` or ``*`` if it is a list."""
    assumed: bool = False
    """True if it is unset only as long as the caller doesn't set it."""
    unread: ShellWord | None = None
    """Further words that may follow, but are unknown."""


def expand_words(shell: ShellReader, word: SyntaxWord, state: State) -> list[ShellWord]:
    """The words to which a command's word expands, after splitting and globbing."""
    original = _expand_lone_array(shell, word, state)
    if original is not None:
        return original
    found: list[ShellWord] = []
    for parts in expand_braces(word.parts):
        start, end = (parts[0].start_byte, parts[-1].end_byte) if parts else (word.start_byte, word.end_byte)
        whole = len(parts) == len(word.parts)
        place = shell.place(WordPart(word.start_byte, word.end_byte) if whole else WordPart(start, max(start, end)))
        items = _expand_parts(shell, parts, state, split=True)
        for made in split_into_words(_expand_tilde(items, parts, state), place, separators=state.separators):
            found += _expand_glob(made, state)
    return found


def _expand_lone_array(shell: ShellReader, word: SyntaxWord, state: State) -> list[ShellWord] | None:
    """The elements of a lone ``"$@"`` or ``"${ARGS[@]}"``, at their own places. None for any other word."""
    part = word.parts[0] if len(word.parts) == 1 else None
    if not isinstance(part, Parameter) or part.kind or part.operator or (part.quoted and "*" in shell.text(part)):
        return None
    words: tuple[ShellWord, ...]
    if part.index is None and part.name in ("@", "*"):
        words = state.positional
        if not state.arguments_given:
            return [*words, unknown_word(shell, part, _ALL_ARGUMENTS_REASON)]
    elif part.index is not None and shell.source.data[slice(*part.index)].strip() in (b"@", b"*"):
        variable = state.variables.get(part.name)
        if variable is None or variable.array is None:
            return None
        words = variable.array
    else:
        return None
    if part.quoted:
        return [msgspec.structs.replace(each, quoted=True) for each in words]
    found: list[ShellWord] = []
    for each in words:
        if each.value is None:
            found.append(each)
            continue
        pieces = [msgspec.structs.replace(piece, split=True, quoted=False) for piece in each.pieces]
        for made in split_into_words(pieces, each.place, separators=state.separators):
            found += _expand_glob(made, state)
    return found


def expand_unsplit(shell: ShellReader, word: SyntaxWord | None, state: State) -> list[Piece]:
    """The pieces of a word that isn't split: an assignment's value, the word of a ``case``."""
    if word is None:
        return []
    items = _expand_tilde(_expand_parts(shell, word.parts, state, split=False), word.parts, state, is_assignment=True)
    return _flatten(shell, items, word)


def expand_text(shell: ShellReader, start: int, end: int, state: State, *, heredoc: bool = False) -> list[Piece]:
    """The pieces of a text as in double quotes, or of a here-document."""
    parts = Lexer(shell.source.data, end).parse_text(start, end, quoted=True, heredoc=heredoc)
    return _flatten(shell, _expand_parts(shell, parts, state, split=False), WordPart(start, end))


def word_at(shell: ShellReader, start: int, *, pattern: bool = False) -> SyntaxWord:
    """The word that begins at offset ``start``."""
    return Lexer(shell.source.data, shell.limit).parse_word(start, pattern=pattern)


def _flatten(shell: ShellReader, items: ExpandedItems, node: Any) -> list[Piece]:
    """Items as a single text, with word boundaries replaced by blanks."""
    return [Piece(" ", shell.source, node.start_byte, node.start_byte) if item is None else item for item in items]


def _expand_parts(
    shell: ShellReader, parts: Sequence[WordPart], state: State, *, split: bool, depth: int = 0
) -> ExpandedItems:
    found: ExpandedItems = []
    for part in parts:
        found += _expand_part(shell, part, state, split and not part.quoted, depth)
    return found


def _expand_part(shell: ShellReader, part: WordPart, state: State, split: bool, depth: int) -> ExpandedItems:
    if depth > _MAX_DEPTH:
        return [unknown_piece(shell, part)]
    if isinstance(part, Literal):
        return [Piece(part.text, shell.source, part.start_byte, part.end_byte, literal=part.exact, quoted=part.quoted)]
    if isinstance(part, Parameter):
        return _expand_parameter(shell, part, state, split, depth)
    made: Piece
    if isinstance(part, Substitution):
        words = _which_words(shell, part)
        if words:  # expand each word only once: nested ones would double the work with each level
            made = msgspec.structs.replace(unknown_piece(shell, part), program=_which_program(shell, words, state))
        elif (printed := shell.printed(shell, part, state)) is None:
            here = str(state.cwd) if _is_pwd(shell, part) else ""
            made = msgspec.structs.replace(unknown_piece(shell, part), many=split, split=split, folder=here)
        else:
            made = piece_placed_at_use(shell, part, tuple(printed), split)
    elif isinstance(part, Arithmetic):
        number = evaluate_arithmetic_range(shell, part.inner[0], part.inner[1], state)
        made = unknown_piece(shell, part) if number is None else _piece_of_part(shell, part, str(number), split=split)
    else:
        made = unknown_piece(shell, part)
    return [msgspec.structs.replace(made, quoted=part.quoted)]


def _which_words(shell: ShellReader, part: Substitution) -> tuple[SyntaxWord, ...]:
    """The words of ``$(which NAME)``, ``$(command -v NAME)``; empty for anything else."""
    start, end = part.inner
    words = Lexer(shell.source.data, end).parse_words(start)
    first = plain_text(words[0]) if words else ""
    return words if len(words) == {"which": 2, "command": 3, "type": 3}.get(first) else ()


def _is_pwd(shell: ShellReader, part: Substitution) -> bool:
    """``$(pwd)``."""
    start, end = part.inner
    words = Lexer(shell.source.data, end).parse_words(start)
    return len(words) == 1 and plain_text(words[0]) == "pwd"


def _which_program(shell: ShellReader, words: Sequence[SyntaxWord], state: State) -> str:
    """The program that ``which`` or ``command -v`` looks for; empty if it is none."""
    texts = [joined_text(expand_unsplit(shell, word, state)) for word in words[1:]]
    return texts[-1] or "" if len(texts) == 1 or texts[0] in ("-v", "-P") else ""


def _piece_of_part(
    shell: ShellReader, part: WordPart, text: str, *, split: bool = False, reason: Text | None = None
) -> Piece:
    """A piece with this text, placed at a part of a word."""
    return Piece(text, shell.source, part.start_byte, part.end_byte, split=split, reason=reason, quoted=part.quoted)


def _expand_tilde(
    items: ExpandedItems, parts: Sequence[WordPart], state: State, *, is_assignment: bool = False
) -> ExpandedItems:
    """Expand ``~`` and ``~/…`` at the start of a word, after ``NAME=`` and after a ``:`` in an assignment."""
    first = items[0] if items else None
    if first is None or not first.literal or first.quoted or not first.text or "~" not in first.text:
        return items
    text = first.text
    prefix = re.match(r"[A-Za-z_]\w*=", text) if not is_assignment else None
    begin = prefix.end() if prefix is not None else 0
    alone = len(parts) == 1
    home = _home_folder(state)

    def expand_tilde(match: re.Match[str]) -> str:
        return match[1] + home if match[2] or alone else match[0]

    sign = r"(^|:)~(?=(/)|:|$)" if is_assignment or prefix is not None else r"(^)~(?=(/)|$)"
    changed = text[:begin] + re.sub(sign, expand_tilde, text[begin:])
    if changed == text:
        return items
    return [msgspec.structs.replace(first, text=changed, literal=False), *items[1:]]


def _home_folder(state: State) -> str:
    variable = state.variables.get("HOME")
    return (variable.value if variable is not None else None) or os.path.expanduser("~")


def _expand_glob(word: ShellWord, state: State) -> list[ShellWord]:
    """The files that a glob matches, if that can be determined; else the word itself."""
    signs = any(not piece.quoted and piece.text and _GLOB_CHARACTER_PATTERN.search(piece.text) for piece in word.pieces)
    value = word.value
    if not signs or value is None or "noglob" in state.options or "\0" in value:
        return [word]
    written = "".join(
        glob.escape(piece.text or "") if piece.quoted else (piece.text or "").replace("[^", "[!")
        for piece in word.pieces
    )
    if not (state.cwd_known or os.path.isabs(value)):
        # A list in brackets, as in Hydra's arguments, is a glob that matches nothing.
        if not any(not piece.quoted and re.search(r"[*?]", piece.text or "") for piece in word.pieces):
            return [word]
        place = word.place
        return [
            ShellWord(
                (Piece(None, place.source, place.start, place.end, reason=_GLOB_REASON.format(text=value)),), place
            )
        ]
    too_long = len(written) > _MAX_PATTERN_LENGTH or written.count("[") > _MAX_PATTERN_BRACKETS
    try:
        names = [] if too_long else sorted(os.fspath(name) for name in glob.glob(written, root_dir=state.cwd))[:4096]
    except (OSError, ValueError, re.error):
        names = []
    if state.options & _UNSUPPORTED_GLOB_OPTIONS or too_long:
        piece = Piece(None, word.place.source, word.place.start, word.place.end, many=True)
        return [ShellWord((piece,), word.place)]
    if not names:
        return [] if "nullglob" in state.options else [word]
    place = word.place
    return [ShellWord((Piece(name, place.source, place.start, place.end),), place) for name in names]


# Numbers


def evaluate_arithmetic_range(shell: ShellReader, start: int, end: int, state: State) -> int | None:
    """The value of an arithmetic expression in the source; None if unknown. Its assignments take effect."""
    text = joined_text(expand_text(shell, start, end, state))
    return None if text is None else evaluate_arithmetic_text(shell, text.replace('"', ""), WordPart(start, end), state)


def evaluate_arithmetic_text(shell: ShellReader, text: str, syntax_node: Any, state: State) -> int | None:
    """The value of an arithmetic expression that is already expanded."""

    def look_up_variable(name: str, index: int | None) -> str | None:
        variable = state.variables.get(name)
        if index is not None:
            words = variable.array if variable is not None else None
            if words is None or any(word.may_split for word in words):
                return None
            return words[index].value if -len(words) <= index < len(words) else "0"
        if variable is not None and variable.unset:
            return "0"
        found, _assumed = look_up(shell, syntax_node, name, state, split=False)
        return joined_text(found) if found is not None else None

    def assign_variable(name: str, index: int | None, number: int | None) -> None:
        place = shell.place(syntax_node)
        piece = Piece(None if number is None else str(number), shell.source, place.start, place.end)
        if index is None:
            state.set(name, Variable((piece,), place))
        else:
            state.set(name, array_with_element(state.variables.get(name), index, ShellWord((piece,), place)))

    return evaluate(text, look_up_variable, assign_variable)


def array_with_element(before: Variable | None, index: int | None, word: ShellWord) -> Variable:
    """An array with one element set; unknown if that leaves gaps in it."""
    words = before.array if before is not None and before.array is not None else None
    if words is None and before is not None and before.pieces and not before.unset:
        words = (ShellWord(before.pieces, before.place or word.place, True),)
    words = words or ()
    if index is None or any(each.may_split for each in words) or not -len(words) <= index <= len(words):
        piece = Piece(None, word.place.source, word.place.start, word.place.end, many=True)
        return Variable((), word.place, array=(ShellWord((piece,), word.place),))
    if index == len(words):
        return Variable((), word.place, array=(*words, word))
    index %= len(words)
    return Variable((), word.place, array=(*words[:index], word, *words[index + 1 :]))


# Variables


def look_up(shell: ShellReader, node: Any, name: str, state: State, *, split: bool) -> tuple[list[Piece] | None, bool]:
    """The value of ``$name`` (None: not set), and whether it depends on the caller leaving it unset."""
    values = _parameter_values(shell, node, name, state, split)
    if values.elements is None:
        return None, values.assumed
    return [piece for element in values.elements for piece in element], values.assumed


def _parameter_values(shell: ShellReader, node: Any, name: str, state: State, split: bool) -> _ParameterValues:
    if name.isdecimal() or name in ("@", "*", "#"):
        return _positional_values(shell, node, name, state, split)
    variable = state.variables.get(name)
    if variable is not None:
        if variable.unset or (variable.array is not None and not variable.array):
            return _ParameterValues(None)
        return _ParameterValues([tuple(pieces_of_variable(shell, node, variable, split=split))])
    text, reason = shell.special_variable(name, state)
    if text is not None:
        piece = Piece(text, shell.source, node.start_byte, node.end_byte, split=split, reason=reason)
        return _ParameterValues([(piece,)])
    if reason is not None:
        made = unknown_piece(shell, node, reason)
        return _ParameterValues([(msgspec.structs.replace(made, folder=str(state.cwd)) if name == "PWD" else made,)])
    return _ParameterValues(None, assumed=True)


def _positional_values(shell: ShellReader, node: Any, name: str, state: State, split: bool) -> _ParameterValues:
    assumed = not state.arguments_given
    if name == "0":
        return _ParameterValues(
            [(Piece(shell.script_name, shell.source, node.start_byte, node.end_byte, split=split),)]
        )
    if name == "#":
        count = str(len(state.positional))
        return _ParameterValues([(Piece(count, shell.source, node.start_byte, node.end_byte),)], assumed=assumed)
    if name in ("@", "*"):
        elements: list[tuple[Piece, ...]] = [
            (piece_placed_at_use(shell, node, word.pieces, split),) for word in state.positional
        ]
        more = unknown_word(shell, node, _ALL_ARGUMENTS_REASON) if assumed else None
        return _ParameterValues(elements or None, name, assumed, more)
    index = int(name) if len(name) < 6 else 1 << 20
    if 1 <= index <= len(state.positional):
        return _ParameterValues([(piece_placed_at_use(shell, node, state.positional[index - 1].pieces, split),)])
    return _ParameterValues(None, assumed=assumed)


def _expand_parameter_values(shell: ShellReader, part: Parameter, state: State, split: bool) -> _ParameterValues:
    """The values of ``${NAME}`` or ``${NAME[…]}``."""
    name = part.name
    if part.index is None:
        return _parameter_values(shell, part, name, state, split)
    where = shell.source.data[part.index[0] : part.index[1]].decode("utf-8", "surrogateescape").strip()
    if name == "BASH_SOURCE":
        return _ParameterValues([(_piece_of_part(shell, part, shell.sourced, split=split),)])
    variable = state.variables.get(name)
    if where in ("@", "*"):
        if variable is None:
            return _ParameterValues(None, where, assumed=False)
        if variable.unset:
            return _ParameterValues(None, where)
        words = variable.array
        if words is None:
            words = (ShellWord(variable.pieces, shell.place(part), True),)
        more = next((word for word in words if word.may_split), None)
        elements: list[tuple[Piece, ...]] = [
            (piece_placed_at_use(shell, part, word.pieces, split),) for word in words if not word.may_split
        ]
        return _ParameterValues(elements or None, where, unread=more)
    if variable is None:
        return _ParameterValues(None, assumed=True)
    number = evaluate_arithmetic_range(shell, part.index[0], part.index[1], state)
    words = variable.array
    if variable.unset:
        return _ParameterValues(None)
    if words is None:
        if number is None:
            return _ParameterValues([(unknown_piece(shell, part),)])
        return _parameter_values(shell, part, name, state, split) if number in (0, -1) else _ParameterValues(None)
    if number is None or any(word.may_split for word in words):
        return _ParameterValues([(unknown_piece(shell, part),)])
    if -len(words) <= number < len(words):
        return _ParameterValues([(piece_placed_at_use(shell, part, words[number].pieces, split),)])
    return _ParameterValues(None)


def _expand_parameter(shell: ShellReader, part: Parameter, state: State, split: bool, depth: int) -> ExpandedItems:
    found = _expand_with_operator(shell, part, state, split, depth)
    if part.name not in state.variables:
        found = [
            msgspec.structs.replace(item, variable=part.name)
            if item is not None and item.text is None and not item.inner and not item.folder
            else item
            for item in found
        ]
    return [
        item
        if item is None or item.quoted == part.quoted or not part.quoted
        else msgspec.structs.replace(item, quoted=True)
        for item in found
    ]


def _expand_with_operator(shell: ShellReader, part: Parameter, state: State, split: bool, depth: int) -> ExpandedItems:
    if part.kind == "!":
        return _expand_indirect(shell, part, state, split)
    values = _expand_parameter_values(shell, part, state, split)
    if part.kind == "#":
        return [_expand_length(shell, part, values)]
    operator = part.operator
    if operator in (":-", "-", ":=", "=", ":+", "+", ":?", "?"):
        return _expand_default(shell, part, values, state, split, depth)
    if not operator:
        return _expand_list(shell, part, values, state, split)
    if values.unread is not None and values.whole:
        return [values.unread.pieces[0]]
    if values.elements is None:
        return _expand_list(shell, part, values, state, split)
    if operator == ":" and values.whole:
        return _expand_slice(shell, part, values, state, split)
    changed = [_apply_operator(shell, part, element, state, depth) for element in values.elements]
    elements = [
        (
            unknown_piece(shell, part)
            if text is None
            else _piece_of_part(shell, part, text, split=split, reason=reason_of_pieces(element)),
        )
        for text, element in zip(changed, values.elements, strict=True)
    ]
    return _expand_list(shell, part, _ParameterValues(list(elements), values.whole), state, split)


def _expand_list(
    shell: ShellReader, part: Parameter, values: _ParameterValues, state: State, split: bool
) -> ExpandedItems:
    """A single value, or the elements of a list: as separate words, or joined for ``"$*"``."""
    if values.elements is None and values.unread is None:
        joins = values.whole == "*" and part.quoted
        if values.whole:
            return [_piece_of_part(shell, part, "")] if joins else []
        return _expand_if_unset(shell, part, values.assumed, state, split)
    elements = values.elements or []
    if not values.whole:
        return [piece for element in elements for piece in element]
    if values.unread is not None:
        elements = [*elements, tuple(values.unread.pieces)]
    joined = values.whole == "*" and part.quoted
    items: ExpandedItems = []
    for index, element in enumerate(elements):
        if index:
            items.append(_piece_of_part(shell, part, state.separators[:1]) if joined else None)
        items += element
    if joined:
        return [piece_placed_at_use(shell, part, tuple(item for item in items if item is not None), False)]
    return items


def _expand_if_unset(shell: ShellReader, part: Parameter, assumed: bool, state: State, split: bool) -> ExpandedItems:
    if "nounset" in state.options and not (assumed and not part.name.isdecimal()):
        state.failing = True
    if not assumed:
        return [_piece_of_part(shell, part, "", split=split)]
    reason = (_SCRIPT_ARGUMENT_MISSING if part.name.isdecimal() else NOT_SET).format(name=part.name)
    return [msgspec.structs.replace(unknown_piece(shell, part, reason), split=split)]


def _expand_indirect(shell: ShellReader, part: Parameter, state: State, split: bool) -> ExpandedItems:
    """``${!NAME}``, ``${!ARRAY[@]}``."""
    if part.index is not None:
        values = _expand_parameter_values(shell, part, state, split)
        where = shell.source.data[part.index[0] : part.index[1]].strip()
        if values.unread is not None or where not in (b"@", b"*"):
            return [unknown_piece(shell, part)]
        numbers = [
            (_piece_of_part(shell, part, str(index), split=split),) for index in range(len(values.elements or ()))
        ]
        return _expand_list(shell, part, _ParameterValues(list(numbers) or None, where.decode()), state, split)
    name, _assumed = look_up(shell, part, part.name, state, split=False)
    text = joined_text(name) if name is not None else None
    if part.operator or not text or not text.isidentifier():
        return [unknown_piece(shell, part)]
    other = Parameter(part.start_byte, part.end_byte, part.quoted, text)
    return _expand_list(shell, other, _expand_parameter_values(shell, other, state, split), state, split)


def _expand_length(shell: ShellReader, part: Parameter, values: _ParameterValues) -> Piece:
    """``${#X}`` and ``${#ARRAY[@]}``."""
    if values.unread is not None:
        return unknown_piece(shell, part)
    if values.whole:
        return _piece_of_part(shell, part, str(len(values.elements or ())))
    if values.elements is None:
        return (
            unknown_piece(shell, part, NOT_SET.format(name=part.name))
            if values.assumed
            else _piece_of_part(shell, part, "0")
        )
    text = joined_text([piece for element in values.elements for piece in element])
    return unknown_piece(shell, part) if text is None else _piece_of_part(shell, part, str(len(text)))


def _expand_default(
    shell: ShellReader, part: Parameter, values: _ParameterValues, state: State, split: bool, depth: int
) -> ExpandedItems:
    """``${X:-word}`` and the like."""
    operator = part.operator
    there = values.elements is not None
    text = joined_text([piece for element in values.elements or () for piece in element])
    if values.whole and values.elements is not None and len(values.elements) > 1:
        text = text if text else " "
    if values.unread is not None and not there and operator[-1] != "+":
        return [values.unread.pieces[0]]
    if there and text is None and operator.startswith(":"):
        return _expand_list(shell, part, values, state, split) if operator != ":+" else [unknown_piece(shell, part)]
    is_set = there and not (operator.startswith(":") and text == "")
    if operator[-1] == "+":
        return _expand_operator_word(shell, part, state, split, depth) if is_set else []
    if is_set:
        return _expand_list(shell, part, values, state, split)
    if operator[-1] == "?":
        if not values.assumed:
            state.failing = True
        return _expand_if_unset(shell, part, values.assumed, state, split)
    if operator[-1] == "=":
        assigned = _flatten(shell, _expand_operator_word(shell, part, state, False, depth), part)
        if part.index is None and part.name.isidentifier():
            state.set(part.name, Variable(tuple(assigned), shell.place(part)))
        return [piece_placed_at_use(shell, part, tuple(assigned), split)]
    word = _expand_operator_word(shell, part, state, split, depth)
    reason = _DEFAULT_VALUE_REASON.format(text=shell.text(part)) if values.assumed else None
    pieces = [item for item in word if item is not None]
    if len(pieces) == len(word) and len({(piece.split, piece.quoted) for piece in pieces}) <= 1:
        kept = bool(pieces) and pieces[0].split
        made = piece_placed_at_use(
            shell, part, tuple(pieces), kept, reason if joined_text(pieces) is not None else None
        )
        quoted = part.quoted or (bool(pieces) and pieces[0].quoted)
        return [msgspec.structs.replace(made, quoted=quoted)] if pieces or part.quoted else []
    return [
        item if item is None or reason is None or item.text is None else msgspec.structs.replace(item, reason=reason)
        for item in word
    ]


def _expand_operator_word(shell: ShellReader, part: Parameter, state: State, split: bool, depth: int) -> ExpandedItems:
    """The word after an operator in ``${…}``: outside quotes, its literal blanks separate words too."""
    start, end = part.argument
    parts = Lexer(shell.source.data, end).parse_text(start, end, quoted=part.quoted, argument=True)
    items = _expand_parts(shell, parts, state, split=split, depth=depth + 1)
    items = _expand_tilde(items, parts, state) if not part.quoted else items
    return [
        msgspec.structs.replace(item, split=True)
        if item is not None and item.literal and not item.quoted and split
        else item
        for item in items
    ]


def _expand_slice(
    shell: ShellReader, part: Parameter, values: _ParameterValues, state: State, split: bool
) -> ExpandedItems:
    """``"${@:2}"``, ``${ARRAY[@]:1:2}``."""
    numbers = _substring_bounds(shell, part, state)
    if numbers is None:
        return [unknown_piece(shell, part)]
    first, count = numbers
    elements = list(values.elements or ())
    if part.index is None:  # ${@:0} begins with the script's name
        elements = [(_piece_of_part(shell, part, shell.script_name, split=split),), *elements]
    if first < 0:
        first += len(elements)
        if first < 0:
            return []
    if count is not None and count < 0:
        return [unknown_piece(shell, part)]
    chosen = elements[first:] if count is None else elements[first : first + count]
    return _expand_list(shell, part, _ParameterValues(chosen or None, values.whole), state, split)


def _substring_bounds(shell: ShellReader, part: Parameter, state: State) -> tuple[int, int | None] | None:
    text = joined_text(expand_text(shell, *part.argument, state))
    if text is None or "?" in text:
        return None
    first, colon, second = text.partition(":")
    start = evaluate_arithmetic_text(shell, first, part, state)
    count = evaluate_arithmetic_text(shell, second, part, state) if colon else None
    return None if start is None or (colon and count is None) else (start, count)


def _apply_operator(
    shell: ShellReader, part: Parameter, element: tuple[Piece, ...], state: State, depth: int
) -> str | None:
    """A value after applying ``%``, ``##``, ``/``, ``^^`` or ``:``; None if it can't be determined."""
    text = joined_text(element)
    operator = part.operator
    start, end = part.argument
    if text is None or len(text) > _MAX_TEXT_LENGTH or operator == "@":
        return None
    if operator in ("^^", ",,", "^", ","):
        return change_case(operator, text) if start == end else None
    if operator == ":":
        numbers = _substring_bounds(shell, part, state)
        if numbers is None:
            return None
        first, count = numbers
        first = first + len(text) if first < 0 else first
        if first < 0 or first > len(text):
            return ""
        last = len(text) if count is None else (first + count if count >= 0 else len(text) + count)
        return text[first:last] if last >= first else None
    parts = Lexer(shell.source.data, end).parse_text(start, end, quoted=False)
    if operator in ("%", "%%", "#", "##"):
        pattern = pattern_to_regex(shell, parts, state, depth)
        return None if pattern is None else remove_match(operator, text, pattern)
    return _substitute(shell, parts, text, operator, state, depth)


def pattern_to_regex(shell: ShellReader, parts: Sequence[WordPart], state: State, depth: int = 0) -> str | None:
    """A regular expression for the pattern that a word expands to; None if it can't be determined."""
    items = _expand_tilde(_expand_parts(shell, parts, state, split=False, depth=depth + 1), parts, state)
    texts = _pattern_texts(items)
    return None if texts is None else glob_to_regex(texts)


def _pattern_texts(items: ExpandedItems) -> list[tuple[str, bool]] | None:
    """The texts of a pattern, each with whether it is quoted; None if they can't be determined."""
    texts = [(item.text, item.quoted) for item in items if item is not None]
    if any(text is None for text, _ in texts):
        return None
    if any(not quoted and re.search(r"[?*+@!]\(|\[\[?[:.=]", text or "") for text, quoted in texts):
        return None
    return [(text or "", quoted) for text, quoted in texts]


def _substitute(
    shell: ShellReader, parts: Sequence[WordPart], text: str, operator: str, state: State, depth: int
) -> str | None:
    """``${X/old/new}``, ``${X//old/new}``, ``${X/#old/new}``."""
    old: list[WordPart] = []
    new: list[WordPart] = []
    target = old
    for part in parts:
        if target is old and isinstance(part, Literal) and not part.quoted and "/" in part.text:
            before, _, after = part.text.partition("/")
            middle = part.start_byte + len(before.encode("utf-8", "surrogateescape"))
            old.append(Literal(part.start_byte, middle, False, before))
            new.append(Literal(middle + 1, part.end_byte, False, after))
            target = new
        else:
            target.append(part)
    texts = _pattern_texts(_expand_parts(shell, old, state, split=False, depth=depth + 1))
    cells = glob_regex_parts(texts) if texts is not None else []
    # The longest match counts, so backtracking is needed; with up to two stars it is fast.
    pattern = "".join(cells) if texts is not None and cells.count(".*") <= 2 else None
    pieces = [item for item in _expand_parts(shell, new, state, split=False, depth=depth + 1) if item is not None]
    into = joined_text(pieces)
    if pattern is None or into is None or any(not piece.quoted and "&" in (piece.text or "") for piece in pieces):
        return None
    if not pattern:
        return text if operator != "/#" and operator != "/%" else (into + text if operator == "/#" else text + into)
    try:
        whole = {"/#": rf"\A(?:{pattern})", "/%": rf"(?:{pattern})\Z"}.get(operator, pattern)
        if operator == "//" and re.fullmatch(pattern, "", re.DOTALL):
            return None
        return re.sub(whole, lambda _match: into, text, count=0 if operator == "//" else 1, flags=re.DOTALL)
    except re.error:
        return None


def expand_assignment_words(shell: ShellReader, word: SyntaxWord | ShellAssignment, state: State) -> list[ShellWord]:
    """The words of a command's argument; if it has the form of an assignment, it isn't split."""
    if isinstance(word, SyntaxWord):
        return expand_words(shell, word, state)
    head = shell.source.data[word.start_byte : word.end_byte]
    start = word.start_byte + (head.index(b"=") + 1)
    name = Literal(word.start_byte, start, True, head[: start - word.start_byte].decode("utf-8", "replace"))
    pieces = _flatten(shell, _expand_parts(shell, (name,), state, split=False), word) + expand_unsplit(
        shell, word.value, state
    )
    return [ShellWord(tuple(pieces), shell.place(word), True)]
