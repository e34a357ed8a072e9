"""Evaluates tests: ``[ … ]``, ``[[ … ]]``, ``(( … ))`` and ``test …``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from gonogo.evidence.shell.expansion import (
    evaluate_arithmetic_range,
    expand_unsplit,
    expand_words,
    look_up,
    pattern_to_regex,
)
from gonogo.evidence.shell.lexer import Lexer, Parameter, SyntaxWord
from gonogo.evidence.shell.reading import ShellReader
from gonogo.evidence.shell.state import FAILURE, UNSURE, ExitStatus, State
from gonogo.evidence.shell.text import joined_text, matches_whole_text

_NUMERIC_OPERATORS = ("-eq", "-ne", "-lt", "-gt", "-le", "-ge")
_BINARY_OPERATORS = frozenset({*_NUMERIC_OPERATORS, "=", "==", "!=", "<", ">", "-nt", "-ot", "-ef", "=~"})
_UNARY_OPERATORS = frozenset({f"-{letter}" for letter in "abcdefghknoprstuvwxzGLNORS"})
_MAX_DEPTH = 24
_MAX_TEST_WORDS = 64
"""A test with more words isn't evaluated: in broken syntax, each of many would be read to the script's end."""
_SIMPLE_PATTERN = re.compile(r"[\w .,:/@%=~^$*+?|()\[\]-]*")


class TestOperand(msgspec.Struct):
    """An operand of a test; ``unset``: nothing sets it, as far as the files show."""

    text: str | None
    unset: bool = False
    word: SyntaxWord | None = None
    """The word as written, between ``[[`` and ``]]``."""
    arguments: bool = False
    """True if it depends on the script's arguments: the script is evaluated without any."""


def evaluate_test_command(shell: ShellReader, node: Any, state: State) -> ExitStatus:
    """The exit status of ``[[ … ]]``, ``[ … ]`` or ``test``."""
    return evaluate_test_at(shell, node.start_byte, state)


def evaluate_test_at(shell: ShellReader, start: int, state: State) -> ExitStatus:
    """The exit status of the test that begins at offset ``start``."""
    data = shell.source.data
    lexer = Lexer(data, shell.limit)
    if data.startswith(b"((", start):
        close = lexer.find_closing_parenthesis(start + 2)
        number = evaluate_arithmetic_range(shell, start + 2, close, state) if close is not None else None
        return UNSURE if number is None else ExitStatus(number != 0)
    if data.startswith(b"[[", start):
        return _DoubleBracketTest(shell, state, lexer, start + 2).evaluate()
    words = lexer.parse_words(start, _MAX_TEST_WORDS)
    if not words or data[words[-1].start_byte : words[-1].end_byte] != b"]":
        return UNSURE
    return evaluate_test_words(shell, words[1:-1], state)


def evaluate_test_words(shell: ShellReader, words: Sequence[SyntaxWord], state: State) -> ExitStatus:
    """The exit status of ``test WORDS``."""
    tested: list[TestOperand] = []
    for word in words:
        operand = _unset_operand(shell, word, state)
        if operand is not None:
            tested.append(operand)
            continue
        arguments = _uses_positional_arguments(word)
        for made in expand_words(shell, word, state):
            if made.may_split:
                return UNSURE
            tested.append(TestOperand(made.value, arguments=arguments))
    found, rest = _or_expression(tested, 0)
    return UNSURE if rest else found


def _uses_positional_arguments(word: SyntaxWord) -> bool:
    return any(isinstance(part, Parameter) and part.name[:1].isdecimal() for part in word.parts)


def _unset_operand(shell: ShellReader, word: SyntaxWord, state: State) -> TestOperand | None:
    """``"$X"`` or ``${X:-}`` for a variable that nothing sets: assumed to be empty."""
    part = word.parts[0] if len(word.parts) == 1 else None
    if not isinstance(part, Parameter) or part.kind or part.index is not None:
        return None
    found, assumed = look_up(shell, part, part.name, state, split=False)
    if part.name == "#" and assumed:
        return TestOperand(joined_text(found) if found is not None else None, True, arguments=True)
    if found is not None or not assumed:
        return None
    if not part.operator:
        return TestOperand("", True, arguments=part.name[:1].isdecimal())
    if part.operator in ("+", ":+", ":-", "-"):
        return TestOperand(joined_text(expand_unsplit(shell, word, state)), True, arguments=part.name[:1].isdecimal())
    return None


# test, [


def _or_expression(words: list[TestOperand], depth: int) -> tuple[ExitStatus, list[TestOperand]]:
    left, rest = _and_expression(words, depth)
    while rest and rest[0].text == "-o":
        right, rest = _and_expression(rest[1:], depth)
        left = _combine_statuses(left, False, right)
    return left, rest


def _and_expression(words: list[TestOperand], depth: int) -> tuple[ExitStatus, list[TestOperand]]:
    left, rest = _primary_expression(words, depth)
    while rest and rest[0].text == "-a":
        right, rest = _primary_expression(rest[1:], depth)
        left = _combine_statuses(left, True, right)
    return left, rest


def _primary_expression(words: list[TestOperand], depth: int) -> tuple[ExitStatus, list[TestOperand]]:
    if not words:
        return FAILURE, []
    if depth > _MAX_DEPTH:
        return UNSURE, []
    first = words[0].text
    if len(words) >= 3 and words[1].text in _BINARY_OPERATORS and not (len(words) > 3 and first == "!"):
        return evaluate_binary_test(words[0], words[1].text or "", words[2], None), words[3:]
    if first == "!" and len(words) > 1:
        found, rest = _primary_expression(words[1:], depth + 1)
        return found.negated(), rest
    if first == "(" and len(words) > 2:
        found, rest = _or_expression(words[1:], depth + 1)
        return found, rest[1:] if rest and rest[0].text == ")" else rest
    if first in _UNARY_OPERATORS and len(words) > 1 and not (len(words) > 2 and words[1].text in ("-a", "-o")):
        return evaluate_unary_test(first, words[1]), words[2:]
    if first is None:
        return UNSURE, words[1:]
    return ExitStatus(bool(first), words[0].unset), words[1:]


def evaluate_unary_test(operator: str, operand: TestOperand) -> ExitStatus:
    """``-z X``, ``-n X``; tests of files are unknown."""
    if operator not in ("-z", "-n") or operand.text is None:
        return UNSURE
    return ExitStatus((operand.text == "") == (operator == "-z"), operand.unset)


def evaluate_binary_test(first: TestOperand, operator: str, second: TestOperand, pattern: str | None) -> ExitStatus:
    """``A = B``, ``A -lt B``; ``pattern`` is the right side as a regular expression, if it is a pattern."""
    if first.text is None or second.text is None:
        return UNSURE
    assumed = first.unset or second.unset
    if operator in _NUMERIC_OPERATORS:
        try:
            one, two = int(first.text), int(second.text)
        except ValueError:
            return UNSURE
        outcomes = (one == two, one != two, one < two, one > two, one <= two, one >= two)
        return ExitStatus(outcomes[_NUMERIC_OPERATORS.index(operator)], assumed)
    if operator not in ("=", "==", "!="):
        return UNSURE
    if assumed and first.text != second.text and not (first.arguments or second.arguments):
        return UNSURE
    same = (
        first.text == second.text
        if pattern is None
        else len(first.text) <= 4096 and matches_whole_text(pattern, first.text)
    )
    return ExitStatus(same == (operator != "!="), assumed)


def _combine_statuses(left: ExitStatus, conjunction: bool, right: ExitStatus) -> ExitStatus:
    decisive = not conjunction
    for each in (left, right):
        if each.success is decisive:
            return each
    if left.success is None or right.success is None:
        return UNSURE
    return ExitStatus(conjunction, left.assumed or right.assumed)


# [[


class _DoubleBracketTest:
    """Parses ``[[ … ]]``, whose words are not split."""

    def __init__(self, shell: ShellReader, state: State, lexer: Lexer, start: int) -> None:
        self.shell = shell
        self.state = state
        self.lexer = lexer
        self.at = start
        self.depth = 0

    def evaluate(self) -> ExitStatus:
        """The exit status of the test."""
        found = self.parse_or()
        return found if self.next_operator() == b"]]" else UNSURE

    def next_operator(self) -> bytes:
        """The next token, if it is one of ``[[``'s own operators."""
        self.at = self.lexer.skip_blanks(self.at, lines=True)
        data = self.lexer.data
        for sign in (b"&&", b"||", b"(", b")", b"<", b">"):
            if data.startswith(sign, self.at):
                return sign
        following = data[self.at + 1 : self.at + 2]
        if data[self.at : self.at + 1] == b"!" and (not following or following in b" \t\n("):
            return b"!"
        return b"]]" if data.startswith(b"]]", self.at) else b""

    def parse_or(self) -> ExitStatus:
        """``A || B``."""
        left = self.parse_and()
        while self.next_operator() == b"||":
            self.at += 2
            left = _combine_statuses(left, False, self.parse_and())
        return left

    def parse_and(self) -> ExitStatus:
        """``A && B``."""
        left = self.parse_primary()
        while self.next_operator() == b"&&":
            self.at += 2
            left = _combine_statuses(left, True, self.parse_primary())
        return left

    def parse_primary(self) -> ExitStatus:
        """One test."""
        self.depth += 1
        if self.depth > 200:
            return UNSURE
        sign = self.next_operator()
        if sign == b"!":
            self.at += 1
            return self.parse_primary().negated()
        if sign == b"(":
            self.at += 1
            found = self.parse_or()
            if self.next_operator() != b")":
                return UNSURE
            self.at += 1
            return found
        first = self.next_word()
        if first is None:
            return UNSURE
        written = self.lexer.data[first.start_byte : first.end_byte].decode("utf-8", "replace")
        if written in _UNARY_OPERATORS and not self.next_operator():
            operand = self.next_word()
            return UNSURE if operand is None else evaluate_unary_test(written, self.expand_operand(operand))
        before = self.at
        sign = self.next_operator()
        operator = self.next_word() if sign in (b"",) else None
        text = sign.decode() if sign in (b"<", b">") else ""
        if operator is not None:
            text = self.lexer.data[operator.start_byte : operator.end_byte].decode("utf-8", "replace")
        if text in ("<", ">"):
            self.at += 1
        if text not in _BINARY_OPERATORS:
            self.at = before
            tested = self.expand_operand(first)
            return UNSURE if tested.text is None else ExitStatus(bool(tested.text), tested.unset)
        return self.parse_binary_test(first, text)

    def parse_binary_test(self, first: SyntaxWord, operator: str) -> ExitStatus:
        """``A == pattern`` and other binary operators."""
        self.at = self.lexer.skip_blanks(self.at, lines=True)
        if operator == "=~":
            return self.parse_regex_test(first)
        word = self.lexer.parse_word(self.at, pattern=True)
        self.at = word.end_byte
        pattern = pattern_to_regex(self.shell, word.parts, self.state) if operator in ("=", "==", "!=") else None
        second = self.expand_operand(word)
        if operator in ("=", "==", "!=") and pattern is None:
            return UNSURE
        plain = not any(character in (second.text or "") for character in "*?[\\")
        return evaluate_binary_test(self.expand_operand(first), operator, second, None if plain else pattern)

    def parse_regex_test(self, first: SyntaxWord) -> ExitStatus:
        """``A =~ regex``, if all regex dialects agree on the regular expression."""
        word = self.lexer.parse_word(self.at, pattern=True, regex=True)
        self.at = word.end_byte
        pieces = [(piece.text, piece.quoted) for piece in expand_unsplit(self.shell, word, self.state)]
        text = self.expand_operand(first)
        if text.text is None or text.unset or any(each is None for each, _ in pieces):
            return UNSURE
        written = "".join(re.escape(each or "") if quoted else (each or "") for each, quoted in pieces)
        if not all(_SIMPLE_PATTERN.fullmatch(each or "") for each, quoted in pieces if not quoted) or "[[" in written:
            return UNSURE
        try:
            return ExitStatus(re.search(written, text.text) is not None)
        except re.error:
            return UNSURE

    def next_word(self) -> SyntaxWord | None:
        """The next word; None at the end."""
        self.at = self.lexer.skip_blanks(self.at, lines=True)
        word = self.lexer.parse_word(self.at)
        self.at = word.end_byte
        return word if word.end_byte > word.start_byte else None

    def expand_operand(self, word: SyntaxWord) -> TestOperand:
        """The operand to which a word expands."""
        unset = _unset_operand(self.shell, word, self.state)
        if unset is not None:
            return unset
        text = joined_text(expand_unsplit(self.shell, word, self.state))
        return TestOperand(text, word=word, arguments=_uses_positional_arguments(word))
