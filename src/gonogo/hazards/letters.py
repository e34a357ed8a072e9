"""Literals at least one of which is in every log that shows a hazard: other logs need not be checked for it.

A declared hazard's literals are those of its signs, or of its refusal. A handler's literals are those of all patterns
and strings in its code and in the functions that it calls: it finds something only in a log that contains at least
one. If a pattern doesn't require three consecutive bytes, every log is checked; likewise for a fallback.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
import warnings
from collections.abc import Callable, Iterable
from types import FunctionType, MethodType, ModuleType
from typing import Any

from gonogo.evidence.patterns import Pattern
from gonogo.evidence.script.nodes import dotted_name
from gonogo.hazards.hazard import Hazard
from gonogo.hazards.log_rule import LoggedHazard, Sign
from gonogo.hazards.refusal import Refusal

if sys.version_info >= (3, 11):
    from re import _constants as kinds
    from re import _parser as parser
else:
    import sre_constants as kinds
    import sre_parse as parser

LogLiterals = frozenset[str]
MIN_LITERAL_BYTES = 3
"""The shortest useful literal in bytes (a Chinese character has three); any log contains shorter ones."""
SUFFICIENT_LITERAL_BYTES = 8
"""From this length in bytes on, literals are rare enough, and having few of them matters more."""
MATCHES_ANY_LOG = LogLiterals({""})
"""Literals that every log contains."""
_TEXT_FUNCTIONS = ("Text", "translated", "format", "group", "join", "join_texts", "mentions")
"""Calls whose strings are not searched in the log: texts of findings, groups of a match, the setup."""
_CONTEXT_MODULE = "gonogo.evidence.log.context"
"""Its checks (whether this is a training log at all) only accompany evidence and are none themselves."""


# Patterns


def literals_of_pattern(pattern: Pattern) -> LogLiterals:
    """Lower-case literals, one of which is in everything that the pattern matches."""
    text = re.sub(r"\\x\{(\w+)\}", lambda found: re.escape(chr(int(found[1], 16))), pattern.text)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            parts: Any = parser.parse(re.sub(r"\(\?[ims]+\)", "", text))
        except re.error:  # syntax of RE2 that Python's parser lacks
            return MATCHES_ANY_LOG
    return _literals_of_sequence(parts) or MATCHES_ANY_LOG


def _literals_of_sequence(parts: Iterable[Any]) -> LogLiterals | None:
    """The most selective literals among those of the parts, all of which must match; None if there are none."""
    runs, reported = [""], []
    for kind, what in parts:
        letter = _single_character(kind, what)
        if letter:
            runs[-1] += letter
        elif kind is not kinds.AT:  # an anchor consumes no character
            runs.append("")
            reported.append(_literals_of_part(kind, what))
    reported += [LogLiterals({run.casefold()}) for run in runs if _byte_length(run) >= MIN_LITERAL_BYTES]
    return max((words for words in reported if words), key=_selectivity, default=None)


def _single_character(kind: Any, argument: Any) -> str:
    """The one character that a part matches, in either case; empty if there are several."""
    if kind is kinds.LITERAL:
        return chr(argument)
    if kind is kinds.IN and all(one is kinds.LITERAL for one, _ in argument):
        letters = {chr(value).casefold() for _, value in argument}
        return letters.pop() if len(letters) == 1 else ""
    return ""


def _literals_of_part(kind: Any, argument: Any) -> LogLiterals | None:
    if kind is kinds.SUBPATTERN:
        return _literals_of_sequence(argument[3])
    if kind in (kinds.MAX_REPEAT, kinds.MIN_REPEAT):
        return _literals_of_sequence(argument[2]) if argument[0] else None
    if kind is kinds.BRANCH:
        branches = [_literals_of_sequence(branch) for branch in argument[1]]
        return LogLiterals().union(*(words for words in branches if words)) if all(branches) else None
    return None


def _selectivity(words: LogLiterals) -> tuple[int, int]:
    return min(min(map(_byte_length, words)), SUFFICIENT_LITERAL_BYTES), -len(words)


def _byte_length(word: str) -> int:
    return len(word.encode())


# Hazards


def literals_of_hazard(hazard: Hazard) -> LogLiterals:
    """Literals, one of which is in every log that shows the hazard."""
    if hazard.fallback:
        return MATCHES_ANY_LOG
    handler = type(hazard).in_log
    if handler is Hazard.in_log or handler is LoggedHazard.in_log:
        return _declared_literals(hazard)
    return _LiteralCollector(hazard).literals_of_function(handler)


def _declared_literals(hazard: Hazard) -> LogLiterals:
    if isinstance(hazard, LoggedHazard):
        return LogLiterals().union(*map(literals_of_sign, hazard.signs))
    return literals_of_pattern(hazard.refusal.says) if hazard.refusal is not None else LogLiterals()


def literals_of_sign(sign: Sign) -> LogLiterals:
    """Literals, one of which is in everything that shows the sign."""
    literals = (
        [longer_fragments(sign.cut)] if sign.cut else [literals_of_pattern(sign.says)] if sign.says is not None else []
    )
    literals += [_to_log_literals(group) for group in sign.frames]
    if sign.types and not sign.lines and "" not in sign.types:
        literals.append(_to_log_literals(sign.types))
    return max(literals, key=_selectivity, default=MATCHES_ANY_LOG)


def longer_fragments(places: Iterable[tuple[str, str]]) -> LogLiterals:
    """The longer of the two fragments of each place (``ends_at``)."""
    return LogLiterals(max(place, key=len).casefold() for place in places)


def _to_log_literals(literals: Iterable[str]) -> LogLiterals:
    return LogLiterals(one.casefold() if _byte_length(one) >= MIN_LITERAL_BYTES else "" for one in literals)


class _LiteralCollector(ast.NodeVisitor):
    """Collects the patterns and strings that a handler's code uses."""

    def __init__(self, hazard: Hazard) -> None:
        self._hazard = hazard
        self._seen: set[Any] = set()
        self._found: set[str] = set()
        self._globals: dict[str, Any] = {}

    def literals_of_function(self, function: Callable[..., Any]) -> LogLiterals:
        """The literals of everything the function looks for; those of any log if there are none."""
        self._collect_from_function(function)
        return LogLiterals(self._found) if self._found and "" not in self._found else MATCHES_ANY_LOG

    def _collect_from_function(self, function: Callable[..., Any]) -> None:
        function = inspect.unwrap(function)
        module = function.__module__
        if function in self._seen or not module.startswith(("gonogo.hazards.", "gonogo.evidence.log.")):
            return
        if module in (_CONTEXT_MODULE, Hazard.__module__, "gonogo.evidence.log.failure_log"):
            return
        self._seen.add(function)
        outer, self._globals = self._globals, function.__globals__
        (definition,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
        assert isinstance(definition, ast.FunctionDef)
        for statement in definition.body:
            self.visit(statement)
        self._globals = outer

    def _collect_from_value(self, value: Any) -> None:
        if isinstance(value, str):
            if _byte_length(value) >= MIN_LITERAL_BYTES:
                self._found.add(value.casefold())
        elif isinstance(value, (Pattern, Sign, Refusal)):
            self._found |= (
                literals_of_sign(value)
                if isinstance(value, Sign)
                else literals_of_pattern(value.says if isinstance(value, Refusal) else value)
            )
        elif isinstance(value, (tuple, list, frozenset, set, dict)):
            for each in (*value, *value.values()) if isinstance(value, dict) else value:
                self._collect_from_value(each)
        elif isinstance(value, MethodType):
            self._collect_from_function(value.__func__)
        elif isinstance(value, FunctionType) or hasattr(value, "__wrapped__"):
            self._collect_from_function(value)

    def visit_Call(self, node: ast.Call) -> None:
        called = node.func
        name = called.id if isinstance(called, ast.Name) else called.attr if isinstance(called, ast.Attribute) else ""
        signs = [keyword.value for keyword in node.keywords if keyword.arg == "says"]
        if name == "super":
            self._found |= _declared_literals(self._hazard)
        elif name == "errors_of" and signs:
            self.visit(signs[0])  # its message decides, whatever the type
        elif name in _TEXT_FUNCTIONS:
            self.visit(called)
        else:
            self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        self._collect_from_value(self._globals.get(node.id))

    def visit_Attribute(self, node: ast.Attribute) -> None:
        owner = node.value.id if isinstance(node.value, ast.Name) else ""
        if owner == "self":
            if node.attr not in ("name", "title"):
                self._collect_from_value(getattr(self._hazard, node.attr, None))
        elif isinstance(module := self._globals.get(owner), ModuleType):
            self._collect_from_value(getattr(module, node.attr, None))
        else:
            self.visit(node.value)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        """Of ``self.patterns["…"]`` that pattern alone; what is in ``self.texts`` is not searched in the log."""
        of_self = isinstance(node.value, ast.Attribute) and dotted_name(node.value)
        if of_self == "self.patterns" and isinstance(node.slice, ast.Constant):
            self._collect_from_value(self._hazard.patterns[str(node.slice.value)])
        elif of_self != "self.texts":
            self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):  # skip docstrings
            self.generic_visit(node)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Skip f-strings: they are texts of findings."""

    def visit_Constant(self, node: ast.Constant) -> None:
        self._collect_from_value(node.value)


def without_redundant_literals(words: LogLiterals) -> tuple[str, ...]:
    """The literals without those that contain another one."""
    return tuple(sorted(word for word in words if not any(other != word and other in word for other in words)))
