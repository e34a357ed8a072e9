"""``$(( … ))`` with whole numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_MAX_NUMBER = 1 << 62


Value = Callable[[Any, int], str | None]
"""What a variable, an expansion or a string comes to, at some depth; None where that can't be told."""


def evaluate(node: Any, text: Callable[[Any], str], value: Value, depth: int = 0) -> int | None:
    """The number that a node comes to, or None where it can't be told. ``text`` is what stands there."""
    if depth > 24:
        return None
    number = _evaluate(node, text, value, depth)
    return number if number is not None and abs(number) < _MAX_NUMBER else None


def _evaluate(node: Any, text: Callable[[Any], str], value: Value, depth: int) -> int | None:
    kind = node.type
    if kind in ("arithmetic_expansion", "parenthesized_expression", "test_command"):
        inside = node.named_children
        return evaluate(inside[0], text, value, depth + 1) if len(inside) == 1 else None
    if kind in ("number", "word"):
        return _number(text(node))
    if kind in ("variable_name", "simple_expansion", "expansion", "string", "command_substitution"):
        found = value(node, depth)
        return _number(found) if found is not None else None
    if kind == "unary_expression":
        operand = evaluate(node.named_children[-1], text, value, depth + 1) if node.named_children else None
        sign = text(node)[:1]
        if operand is None:
            return None
        return {"-": -operand, "+": operand, "!": int(not operand)}.get(sign)
    if kind == "binary_expression":
        left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
        operator = node.child_by_field_name("operator")
        if left is None or right is None or operator is None:
            return None
        return combined(evaluate(left, text, value, depth + 1), text(operator), evaluate(right, text, value, depth + 1))
    if kind == "ternary_expression" and len(node.named_children) == 3:
        condition, yes, no = node.named_children
        tested = evaluate(condition, text, value, depth + 1)
        return None if tested is None else evaluate(yes if tested else no, text, value, depth + 1)
    return None


def _number(text: str) -> int | None:
    text = text.strip()
    digits = text.removeprefix("-")
    return int(text) if digits.isascii() and digits.isdigit() and len(digits) < 20 else None


def combined(left: int | None, operator: str, right: int | None) -> int | None:
    """The outcome of an operator on whole numbers, as the shell computes it; None where there is none."""
    if left is None or right is None:
        return None
    if operator in ("/", "%"):
        if right == 0:
            return None
        quotient = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
        return quotient if operator == "/" else left - quotient * right
    if operator == "**":
        return left**right if 0 <= right < 64 and abs(left) < 1 << 16 else None
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
    }
    return values.get(operator)
