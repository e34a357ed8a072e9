"""Evaluates ``$(( … ))`` with integers, as the shell does."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise

_MAX_NUMBER = 1 << 62
_MAX_DEPTH = 24
_TOKEN_PATTERN = re.compile(
    r"\s*(?:(\d[\w#@]*)|([A-Za-z_]\w*)|(\*\*|<<=|>>=|<<|>>|<=|>=|==|!=|&&|\|\||\+\+|--|[-+*/%&|^]=|[-+*/%<>=!~&|^?:(),\[\]]))"
)
_PRECEDENCE_LEVELS = (
    ("||",), ("&&",), ("|",), ("^",), ("&",), ("==", "!="), ("<", ">", "<=", ">="), ("<<", ">>"), ("+", "-"),
    ("*", "/", "%"), ("**",),
)  # fmt: skip
_ASSIGNMENT_OPERATORS = frozenset({"=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>="})

VariableReader = Callable[[str, int | None], str | None]
"""Returns the value of a variable or of an array element; None if unknown."""
VariableWriter = Callable[[str, int | None, int | None], None]
"""Sets a variable or an array element; to an unknown number if the value is None."""


class UnknownNumberError(Exception):
    """The number can't be determined."""


def evaluate(text: str, get_variable: VariableReader, set_variable: VariableWriter) -> int | None:
    """The value of an expression, or None if it can't be determined; its assignments take effect."""
    tokens: list[str] = []
    position = 0
    text = text.strip()
    while position < len(text):
        match = _TOKEN_PATTERN.match(text, position)
        if match is None or len(tokens) > 500:
            return None
        tokens.append(match[0].strip())
        position = match.end()
    if not tokens:
        return 0
    evaluator = _Evaluator(tokens, get_variable, set_variable)
    try:
        number = evaluator.parse_comma_list()
        if evaluator.at != len(tokens):
            raise UnknownNumberError
    except UnknownNumberError:
        for name, following in zip(tokens, [*tokens[1:], ""], strict=True):
            if name.isidentifier() and (following in _ASSIGNMENT_OPERATORS or following in ("++", "--", "[")):
                set_variable(name, None, None)
        for before, name in pairwise(tokens):
            if before in ("++", "--") and name.isidentifier():
                set_variable(name, None, None)
        return None
    return number


class _Evaluator:
    """A recursive-descent evaluator of shell arithmetic."""

    def __init__(
        self, tokens: list[str], get_variable: VariableReader, set_variable: VariableWriter, depth: int = 0
    ) -> None:
        self.tokens = tokens
        self.at = 0
        self.get_variable = get_variable
        self.set_variable = set_variable
        self.depth = depth
        self.idle = 0
        """In a branch that is not taken: nothing is set."""

    def peek_token(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def next_token(self) -> str:
        token = self.peek_token()
        self.at += 1
        return token

    def parse_comma_list(self) -> int:
        number = self.parse_assignment()
        while self.peek_token() == ",":
            self.next_token()
            number = self.parse_assignment()
        return number

    def parse_assignment(self) -> int:
        start = self.at
        target = self.parse_target()
        if target is not None and self.peek_token() in _ASSIGNMENT_OPERATORS:
            operator = self.next_token()
            number = self.parse_assignment()
            if operator != "=":
                number = self.combine(self.value_of_target(target), operator[:-1], number)
            self.assign(target, number)
            return number
        self.at = start
        return self.parse_ternary()

    def parse_target(self) -> tuple[str, int | None] | None:
        if not self.peek_token().isidentifier():
            return None
        name = self.next_token()
        if self.peek_token() != "[":
            return name, None
        self.next_token()
        index = self.parse_comma_list()
        if self.next_token() != "]":
            raise UnknownNumberError
        return name, index

    def assign(self, target: tuple[str, int | None], number: int) -> None:
        if not self.idle:
            self.set_variable(*target, number)

    def value_of_target(self, target: tuple[str, int | None]) -> int:
        if self.idle:
            return 0
        text = self.get_variable(*target)
        if text is None:
            raise UnknownNumberError
        return self.parse_number(text)

    def parse_number(self, text: str) -> int:
        text = text.strip()
        sign = -1 if text.startswith("-") else 1
        digits = text.lstrip("-+") if text[:1] in "-+" and text else text
        if not text:
            return 0
        if re.fullmatch(r"0[0-7]{1,20}", digits):
            return sign * int(digits, 8)
        if re.fullmatch(r"0[xX][0-9a-fA-F]{1,15}", digits):
            return sign * int(digits, 16)
        if re.fullmatch(r"\d{1,18}", digits) and not (len(digits) > 1 and digits[0] == "0"):
            return sign * int(digits)
        based = re.fullmatch(r"(\d{1,2})#([0-9a-z]{1,12})", digits)
        if based is not None and 2 <= int(based[1]) <= 36:
            try:
                return sign * int(based[2], int(based[1]))
            except ValueError:
                raise UnknownNumberError from None
        if text.isidentifier() and self.depth < _MAX_DEPTH:
            other = self.get_variable(text, None)
            if other is None:
                raise UnknownNumberError
            self.depth += 1
            try:
                return self.parse_number(other)
            finally:
                self.depth -= 1
        raise UnknownNumberError

    def parse_ternary(self) -> int:
        condition = self.parse_binary(0)
        if self.peek_token() != "?":
            return condition
        self.next_token()
        self.idle += not condition
        yes = self.parse_assignment()
        self.idle -= not condition
        if self.next_token() != ":":
            raise UnknownNumberError
        self.idle += bool(condition)
        no = self.parse_assignment()
        self.idle -= bool(condition)
        return yes if condition else no

    def parse_binary(self, depth: int) -> int:
        if depth == len(_PRECEDENCE_LEVELS):
            return self.parse_unary()
        left = self.parse_binary(depth + 1)
        while self.peek_token() in _PRECEDENCE_LEVELS[depth]:
            operator = self.next_token()
            if operator == "**":
                return self.combine(left, operator, self.parse_binary(depth))
            settled = (operator == "&&" and not left) or (operator == "||" and left != 0)
            self.idle += settled
            right = self.parse_binary(depth + 1)
            self.idle -= settled
            left = self.combine(left, operator, right)
        return left

    def combine(self, left: int, operator: str, right: int) -> int:
        found = apply_operator(left, operator, right)
        if found is None:
            if self.idle:
                return 0
            raise UnknownNumberError
        return found

    def parse_unary(self) -> int:
        token = self.peek_token()
        if token in ("++", "--"):
            self.next_token()
            target = self.parse_target()
            if target is None:
                raise UnknownNumberError
            number = self.value_of_target(target) + (1 if token == "++" else -1)
            self.assign(target, number)
            return number
        if token in ("-", "+", "!", "~"):
            self.next_token()
            operand = self.parse_unary()
            return {"-": -operand, "+": operand, "!": int(not operand), "~": ~operand}[token]
        if token == "(":
            self.next_token()
            number = self.parse_comma_list()
            if self.next_token() != ")":
                raise UnknownNumberError
            return number
        target = self.parse_target()
        if target is not None:
            number = self.value_of_target(target)
            if self.peek_token() in ("++", "--"):
                self.assign(target, number + (1 if self.next_token() == "++" else -1))
            return number
        if not token[:1].isdecimal():
            raise UnknownNumberError
        return self.parse_number(self.next_token())


def apply_operator(left: int | None, operator: str, right: int | None) -> int | None:
    """The result of an operator on integers, as the shell computes it; None if there is none."""
    if left is None or right is None:
        return None
    if operator in ("/", "%"):
        if right == 0:
            return None
        quotient = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
        return quotient if operator == "/" else left - quotient * right
    if operator == "**":
        return left**right if 0 <= right < 64 and abs(left) < 1 << 16 else None
    if operator in ("<<", ">>"):
        if not 0 <= right < 62:
            return None
        shifted = left << right if operator == "<<" else left >> right
        return shifted if abs(shifted) < _MAX_NUMBER else None
    values = {
        "+": left + right,
        "-": left - right,
        "*": left * right,
        "<": int(left < right),
        ">": int(left > right),
        "<=": int(left <= right),
        ">=": int(left >= right),
        "==": int(left == right),
        "!=": int(left != right),
        "&&": int(bool(left) and bool(right)),
        "||": int(bool(left) or bool(right)),
        "&": left & right,
        "|": left | right,
        "^": left ^ right,
    }
    number = values.get(operator)
    return number if number is not None and abs(number) < _MAX_NUMBER else None
