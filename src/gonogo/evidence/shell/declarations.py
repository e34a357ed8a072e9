"""Statements that set variables: assignments, ``export``, ``declare``, ``local``, ``readonly``, ``unset``."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from gonogo.evidence.shell.expansion import array_with_element, evaluate_arithmetic_range, expand_unsplit, expand_words
from gonogo.evidence.shell.lexer import Literal, ShellAssignment, SimpleCommand, SyntaxWord, expand_braces
from gonogo.evidence.shell.reading import ShellReader
from gonogo.evidence.shell.state import FAILURE, SUCCESS, ExitStatus, State, Variable
from gonogo.evidence.shell.text import Piece, ShellWord
from gonogo.evidence.source_file import Place
from gonogo.finding import translated

_MAX_PIECES = 4096
_UNSET_ELEMENT_REASON = translated("an element of the array `{name}` is unset")
_ARRAY_ELEMENT_PATTERN = re.compile(r"([A-Za-z_]\w*)\[.*\]")


def evaluate_assignment(shell: ShellReader, assignment: ShellAssignment, state: State) -> tuple[str, Variable]:
    """The name and the new value of the variable that an assignment sets."""
    place = shell.place(assignment)
    name = assignment.name
    before = state.variables.get(name)
    before = None if before is not None and before.unset else before
    if assignment.index is not None:
        number = evaluate_arithmetic_range(shell, *assignment.index, state)
        pieces = tuple(expand_unsplit(shell, assignment.value, state))[:_MAX_PIECES]
        if assignment.appending:
            number = None
        return name, array_with_element(before, number, ShellWord(pieces, place, True))
    if assignment.array is not None:
        if any(_has_key(word) for word in assignment.array):
            return name, _unknown_array(place)
        words = tuple(made for word in assignment.array for made in expand_words(shell, word, state))[:_MAX_PIECES]
        if assignment.appending and before is not None:
            there = (
                before.array if before.array is not None else (ShellWord(before.pieces, before.place or place, True),)
            )
            words = (*there, *words)
        return name, Variable((), place, array=words)
    pieces = tuple(expand_unsplit(shell, assignment.value, state))[:_MAX_PIECES]
    if before is not None and before.array is not None:  # assigns its first element
        first = before.array[0].pieces if assignment.appending and before.array else ()
        word = ShellWord((*first, *pieces), place, True)
        return name, array_with_element(before, 0, word)
    if assignment.appending and before is not None:
        pieces = (*before.pieces, *pieces)
    elif assignment.appending and name not in state.variables:
        text, reason = shell.special_variable(name, state)
        if text is not None or reason is not None:
            pieces = (Piece(text, shell.source, place.start, place.end, reason=reason), *pieces)
    return name, Variable(pieces[:_MAX_PIECES], place)


def _has_key(word: SyntaxWord) -> bool:
    """``([name]=value)``."""
    first = word.parts[0] if word.parts else None
    return isinstance(first, Literal) and not first.quoted and re.match(r"\[.*\]\+?=|\[[^]]*$", first.text) is not None


def _unknown_array(place: Place) -> Variable:
    piece = Piece(None, place.source, place.start, place.end, many=True)
    return Variable((), place, array=(ShellWord((piece,), place),))


_NO_NAME_PATTERN = r"[^\w\[\]+]*|\d.*"
_NO_NAME = translated(
    "`{program}` sets nothing here, since {text} is not a valid variable name in bash: write NAME=VALUE without blanks"
)


def declare(shell: ShellReader, simple: SimpleCommand, words: Sequence[ShellWord], state: State) -> ExitStatus:
    """``export``, ``declare``, ``typeset``, ``local``, ``readonly``."""
    program = words[0].value or ""
    status = SUCCESS
    exported = program == "export"
    removing = computed = keyed = False
    rest = list(simple.words[1:])
    for each in rest:
        made = [] if isinstance(each, ShellAssignment) else expand_words(shell, each, state)
        for word in made:
            text = word.value or ""
            if text.startswith("-"):
                exported = exported or ("x" in text and program in ("declare", "typeset", "local"))
                removing = removing or (program == "export" and "n" in text)
                computed = computed or "i" in text or "n" in text[1:] * (program != "export")
                keyed = keyed or "A" in text
                continue
            name, equals, value = text.partition("=")
            if not name.isidentifier():
                if status is SUCCESS and word.value is not None and re.fullmatch(_NO_NAME_PATTERN, name):
                    shell.note(word.place, _NO_NAME.format(program=program, text=text or "''"))
                    status = FAILURE
                continue
            _save_outer_value(program, name, state)
            if equals:
                piece = Piece(value, word.place.source, word.place.start, word.place.end)
                _declare_variable(name, Variable((piece,), word.place), state, exported)
            elif removing or exported:
                _export_variable(name, state, exported and not removing)
            elif program == "local" and state.locals:
                state.variables[name] = Variable(unset=True)
        if not isinstance(each, ShellAssignment):
            continue
        name, variable = evaluate_assignment(shell, each, state)
        _save_outer_value(program, name, state)
        braced = each.value is not None and len(expand_braces(each.value.parts)) > 1
        if computed or keyed or braced:
            piece = Piece(None, shell.source, each.start_byte, each.end_byte, many=keyed)
            variable = Variable((piece,), shell.place(each))
        _declare_variable(name, variable, state, exported)
    return status


def _save_outer_value(program: str, name: str, state: State) -> None:
    """Save a variable's value, to be restored when the function that declares it local returns."""
    if program in ("local", "declare", "typeset") and state.locals:
        state.locals[-1].setdefault(name, state.variables.get(name))


def _declare_variable(name: str, variable: Variable, state: State, exported: bool) -> None:
    state.set(name, variable)
    if exported:
        state.variables[name] = msgspec.structs.replace(state.variables[name], exported=True)


def _export_variable(name: str, state: State, exported: bool) -> None:
    variable = state.variables.get(name)
    if variable is not None and not variable.unset:
        state.variables[name] = msgspec.structs.replace(variable, exported=exported)


def run_unset(words: Sequence[ShellWord], state: State) -> ExitStatus:
    """``unset NAME``."""
    functions = any(word.value == "-f" for word in words)
    for word in words:
        name = word.value or ""
        element = _ARRAY_ELEMENT_PATTERN.fullmatch(name)
        if element is not None:
            state.set_unknown(element[1], word.place, _UNSET_ELEMENT_REASON.format(name=element[1]))
        elif name.isidentifier():
            if functions or (name not in state.variables and name in state.functions):
                state.functions.pop(name, None)
            else:
                state.variables[name] = Variable(unset=True)
    return SUCCESS
