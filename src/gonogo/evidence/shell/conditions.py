"""Whether a test holds: ``[ … ]``, ``[[ … ]]``, ``(( … ))`` and ``test …``."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from glob import escape
from typing import Any

from gonogo.evidence.shell.expansion import expand, look_up, number_of
from gonogo.evidence.shell.reading import Reading
from gonogo.evidence.shell.state import UNSURE, ExitStatus, State
from gonogo.evidence.shell.text import ShellWord, text_of

_NUMBERS = {"-eq": "==", "-ne": "!=", "-lt": "<", "-gt": ">", "-le": "<=", "-ge": ">="}


class Tested:
    """A text that a test looks at. ``unset``: nothing sets it, as far as the files tell."""

    def __init__(self, text: str | None, *, unset: bool = False, pattern: bool = False) -> None:
        self.text = text
        self.unset = unset
        self.pattern = pattern


def holds(shell: Reading, node: Any, state: State, depth: int = 0) -> ExitStatus:
    """How a ``test_command`` node ends."""
    if depth > 24:
        return UNSURE
    kind = node.type
    if kind == "test_command":
        if node.children and shell.text(node.children[0]) == "((":
            number = number_of(shell, node, state)
            return UNSURE if number is None else ExitStatus(bool(number))
        inside = node.named_children
        return holds(shell, inside[0], state, depth + 1) if len(inside) == 1 else UNSURE
    if kind == "parenthesized_expression":
        inside = node.named_children
        return holds(shell, inside[0], state, depth + 1) if len(inside) == 1 else UNSURE
    if kind == "unary_expression":
        return _unary(shell, node, state, depth)
    if kind == "binary_expression":
        return _binary(shell, node, state, depth)
    operand = _operand(shell, node, state)
    return UNSURE if operand.text is None else ExitStatus(bool(operand.text), operand.unset)


def test_words(words: list[ShellWord]) -> ExitStatus:
    """How ``test WORDS`` ends."""
    values = [word.value for word in words]
    if len(values) == 2 and values[0] in ("-z", "-n") and values[1] is not None:
        return ExitStatus((values[1] == "") == (values[0] == "-z"))
    if len(values) == 3 and values[1] in ("=", "==", "!=") and values[0] is not None and values[2] is not None:
        return ExitStatus((values[0] == values[2]) == (values[1] != "!="))
    return UNSURE


def _operand(shell: Reading, node: Any, state: State) -> Tested:
    inner = node
    while (
        inner.type == "string"
        and inner.named_child_count == 1
        and len(shell.text(inner)) - 2 == len(shell.text(inner.named_children[0]))
    ):
        inner = inner.named_children[0]
    name = shell.text(inner).strip("${}") if inner.type in ("simple_expansion", "expansion") else ""
    if name and (name.isidentifier() or name.isdigit() or name in "@*#"):
        found, assumed = look_up(shell, inner, name, state, split=False)
        if found is None:
            return Tested("", unset=assumed)
        return Tested(text_of(found), unset=assumed)
    if inner.type == "expansion" and not state.arguments_given:
        # ${X+x} and ${X:-}, asked of a variable that nothing sets.
        children = [child for child in inner.children if child.type not in ("${", "}")]
        if children and shell.text(children[0]).isidentifier() and len(children) > 1:
            found, assumed = look_up(shell, inner, shell.text(children[0]), state, split=False)
            if found is None and assumed and shell.text(children[1]) in ("+", ":+", ":-", "-"):
                return Tested(text_of(expand(shell, inner, state)), unset=True)
    return Tested(text_of(expand(shell, node, state)), pattern=node.type in ("extglob_pattern", "word"))


def _pattern(shell: Reading, parts: Sequence[Any], state: State) -> Tested:
    """``*","*``: a pattern of several parts, of which those in quotes stand for themselves."""
    texts = [(part.type, text_of(expand(shell, part, state))) for part in parts]
    if any(text is None for _, text in texts):
        return Tested(None)
    written = [escape(text or "") if kind in ("string", "raw_string") else text or "" for kind, text in texts]
    return Tested("".join(written), pattern=True)


def _unary(shell: Reading, node: Any, state: State, depth: int) -> ExitStatus:
    operator = shell.text(node.children[0]) if node.children else ""
    operand = node.named_children[-1] if node.named_children else None
    if operand is None:
        return UNSURE
    if operator == "!":
        return holds(shell, operand, state, depth + 1).negated()
    if operator not in ("-z", "-n"):
        return UNSURE
    tested = _operand(shell, operand, state)
    if tested.text is None:
        return UNSURE
    return ExitStatus((tested.text == "") == (operator == "-z"), tested.unset)


def _binary(shell: Reading, node: Any, state: State, depth: int) -> ExitStatus:
    left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
    operator_node = node.child_by_field_name("operator")
    if left is None or right is None or operator_node is None:
        return UNSURE
    operator = shell.text(operator_node)
    if operator in ("&&", "||", "-a", "-o"):
        return _both(
            holds(shell, left, state, depth + 1), operator in ("&&", "-a"), holds(shell, right, state, depth + 1)
        )
    parts = node.children_by_field_name("right")
    first = _operand(shell, left, state)
    second = _pattern(shell, parts, state) if len(parts) > 1 else _operand(shell, right, state)
    if first.text is None or second.text is None:
        return UNSURE
    assumed = first.unset or second.unset
    if operator in _NUMBERS or operator in ("<", ">"):
        try:
            one, two = int(first.text), int(second.text)
        except ValueError:
            return UNSURE
        outcome = {
            "-eq": one == two,
            "-ne": one != two,
            "-lt": one < two,
            "-gt": one > two,
            "-le": one <= two,
            "-ge": one >= two,
        }.get(operator)
        return UNSURE if outcome is None else ExitStatus(outcome, assumed)
    if operator in ("=", "==", "!="):
        if assumed and first.text != second.text and not _positional(shell, left, right):
            return UNSURE
        if second.pattern and any(character in second.text for character in "*?["):
            same = len(first.text) <= 4096 and fnmatchcase(first.text, second.text)
        else:
            same = first.text == second.text
        return ExitStatus(same == (operator != "!="), assumed)
    return UNSURE


def _positional(shell: Reading, *nodes: Any) -> bool:
    """Whether a test asks for the script's arguments: it is read as it runs without any."""
    return any(shell.text(node).strip('"${}')[:1].isdigit() for node in nodes if "$" in shell.text(node))


def _both(left: ExitStatus, conjunction: bool, right: ExitStatus) -> ExitStatus:
    decisive = not conjunction
    for one in (left, right):
        if one.success is decisive:
            return one
    if left.success is None or right.success is None:
        return UNSURE
    return ExitStatus(conjunction, left.assumed or right.assumed)
