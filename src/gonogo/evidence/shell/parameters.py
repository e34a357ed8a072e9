"""``$X``, ``${X:-8}``, ``${X%.json}``, ``${ARRAY[0]}``, ``${#X}``: what a variable comes to where it is used."""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import msgspec

from gonogo.evidence.shell.arithmetic import evaluate
from gonogo.evidence.shell.expansion import QUOTES, carried, expand, from_variable, name_in, unknown
from gonogo.evidence.shell.state import NOT_SET, State, Variable
from gonogo.evidence.shell.text import Piece, ShellWord, literal_pieces, reason_of, text_of
from gonogo.finding import Text

if TYPE_CHECKING:
    from gonogo.evidence.shell.run import Shell

_DEFAULT = Text("the default of `{text}`", "取 `{text}` 的默认值")
_ARGUMENT = Text("the script's argument `${name}` is not given", "没有给出脚本的参数 `${name}`")


def look_up(shell: Shell, node: Any, name: str, state: State, *, split: bool) -> tuple[list[Piece] | None, bool]:
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


def _positional(shell: Shell, node: Any, name: str, state: State, *, split: bool) -> tuple[list[Piece] | None, bool]:
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


def expand_variable(shell: Shell, node: Any, state: State, split: bool, depth: int) -> list[Piece]:
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
    shell: Shell, node: Any, name: str, found: list[Piece] | None, assumed: bool, split: bool
) -> list[Piece]:
    if found is not None:
        return found
    if not assumed:
        return [Piece("", shell.source, node.start_byte, node.end_byte, split=split)]
    reason = (_ARGUMENT if name.isdigit() else NOT_SET).format(name=name)
    return [msgspec.structs.replace(unknown(shell, node, reason), split=split)]


def _element(shell: Shell, node: Any, subscript: Any, state: State, split: bool) -> tuple[list[Piece] | None, bool]:
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
    number = evaluate(shell, index, state)
    if number is None or variable.array is None:
        return ([unknown(shell, node)], False) if number != 0 else look_up(shell, node, name, state, split=split)
    if any(word.many for word in variable.array):
        return [unknown(shell, node)], False
    if -len(variable.array) <= number < len(variable.array):
        return [carried(shell, node, variable.array[number].pieces, split)], False
    return None, False


def _length(shell: Shell, node: Any, inside: list[Any], state: State) -> Piece:
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
    shell: Shell,
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
    changed = _changed(operator, text, argument, [shell.text(child) for child in rest])
    if changed is None:
        return [unknown(shell, node)]
    return [Piece(changed, shell.source, node.start_byte, node.end_byte, split=split, reason=reason_of(found))]


def _rest(shell: Shell, node: Any, rest: list[Any], state: State, depth: int) -> list[Piece]:
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


def _changed(operator: str, text: str, argument: str | None, rest: list[str]) -> str | None:
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
