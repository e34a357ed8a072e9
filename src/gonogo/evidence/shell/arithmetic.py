"""Evaluates ``$(( … ))`` with integers, as the shell does."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise

_MAX_NUMBER = 1 << 62
_MAX_DEPTH = 24
_TOKEN = re.compile(
    r"\s*(?:(\d[\w#@]*)|([A-Za-z_]\w*)|(\*\*|<<=|>>=|<<|>>|<=|>=|==|!=|&&|\|\||\+\+|--|[-+*/%&|^]=|[-+*/%<>=!~&|^?:(),\[\]]))"
)
_PRECEDENCE_LEVELS = (
    ("||",), ("&&",), ("|",), ("^",), ("&",), ("==", "!="), ("<", ">", "<=", ">="), ("<<", ">>"), ("+", "-"),
    ("*", "/", "%"), ("**",),
)  # fmt: skip
_ASSIGNMENT_OPERATORS = frozenset({"=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>="})

Look = Callable[[str, int | None], str | None]
"""Returns the value of a variable or of an array element; None if unknown."""
VariableWriter = Callable[[str, int | None, int | None], None]
"""Sets a variable or an array element; to an unknown number if the value is None."""


class UnknownNumberError(Exception):
    """The number can't be determined."""


def evaluate(text: str, get_variable: Look, set_variable: VariableWriter) -> int | None:
    """The value of an expression, or None if it can't be determined; its assignments take effect."""
    tokens: list[str] = []
    position = 0
    text = text.strip()
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None or len(tokens) > 500:
            return None
        tokens.append(match[0].strip())
        position = match.end()
    if not tokens:
        return 0
    evaluator = _Evaluator(tokens, get_variable, set_variable)
    try:
        number = evaluator.comma()
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
    def __init__(self, tokens: list[str], get_variable: Look, set_variable: VariableWriter, depth: int = 0) -> None:
        self.tokens = tokens
        self.at = 0
        self.look = get_variable
        self.put = set_variable
        self.depth = depth
        self.idle = 0
        """In a branch that is not taken: nothing is set."""

    def peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def take(self) -> str:
        token = self.peek()
        self.at += 1
        return token

    def comma(self) -> int:
        number = self.assigned()
        while self.peek() == ",":
            self.take()
            number = self.assigned()
        return number

    def assigned(self) -> int:
        start = self.at
        target = self.target()
        if target is not None and self.peek() in _ASSIGNMENT_OPERATORS:
            operator = self.take()
            number = self.assigned()
            if operator != "=":
                number = self.combined(self.value(target), operator[:-1], number)
            self.set(target, number)
            return number
        self.at = start
        return self.ternary()

    def target(self) -> tuple[str, int | None] | None:
        if not self.peek().isidentifier():
            return None
        name = self.take()
        if self.peek() != "[":
            return name, None
        self.take()
        index = self.comma()
        if self.take() != "]":
            raise UnknownNumberError
        return name, index

    def set(self, target: tuple[str, int | None], number: int) -> None:
        if not self.idle:
            self.put(*target, number)

    def value(self, target: tuple[str, int | None]) -> int:
        if self.idle:
            return 0
        text = self.look(*target)
        if text is None:
            raise UnknownNumberError
        return self.number(text)

    def number(self, text: str) -> int:
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
            other = self.look(text, None)
            if other is None:
                raise UnknownNumberError
            self.depth += 1
            try:
                return self.number(other)
            finally:
                self.depth -= 1
        raise UnknownNumberError

    def ternary(self) -> int:
        condition = self.level(0)
        if self.peek() != "?":
            return condition
        self.take()
        self.idle += not condition
        yes = self.assigned()
        self.idle -= not condition
        if self.take() != ":":
            raise UnknownNumberError
        self.idle += bool(condition)
        no = self.assigned()
        self.idle -= bool(condition)
        return yes if condition else no

    def level(self, depth: int) -> int:
        if depth == len(_PRECEDENCE_LEVELS):
            return self.unary()
        left = self.level(depth + 1)
        while self.peek() in _PRECEDENCE_LEVELS[depth]:
            operator = self.take()
            if operator == "**":
                return self.combined(left, operator, self.level(depth))
            settled = (operator == "&&" and not left) or (operator == "||" and left != 0)
            self.idle += settled
            right = self.level(depth + 1)
            self.idle -= settled
            left = self.combined(left, operator, right)
        return left

    def combined(self, left: int, operator: str, right: int) -> int:
        found = combined(left, operator, right)
        if found is None:
            if self.idle:
                return 0
            raise UnknownNumberError
        return found

    def unary(self) -> int:
        token = self.peek()
        if token in ("++", "--"):
            self.take()
            target = self.target()
            if target is None:
                raise UnknownNumberError
            number = self.value(target) + (1 if token == "++" else -1)
            self.set(target, number)
            return number
        if token in ("-", "+", "!", "~"):
            self.take()
            operand = self.unary()
            return {"-": -operand, "+": operand, "!": int(not operand), "~": ~operand}[token]
        if token == "(":
            self.take()
            number = self.comma()
            if self.take() != ")":
                raise UnknownNumberError
            return number
        target = self.target()
        if target is not None:
            number = self.value(target)
            if self.peek() in ("++", "--"):
                self.set(target, number + (1 if self.take() == "++" else -1))
            return number
        if not token[:1].isdecimal():
            raise UnknownNumberError
        return self.number(self.take())


def combined(left: int | None, operator: str, right: int | None) -> int | None:
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
