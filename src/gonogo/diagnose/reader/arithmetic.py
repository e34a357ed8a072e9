"""Evaluate arithmetic from an untrusted source, without executing it."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable

_MAX_LENGTH = 200
_MAX_POWER = 64
_MAX_VALUE = 1e30
_OPERATORS: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


def evaluate_arithmetic(expression: str) -> tuple[float, list[float]] | None:
    """The value and the numbers of an expression with + - * / // % ** and parentheses; None for others."""
    text = expression.strip().replace("×", "*").replace("÷", "/").replace("^", "**").replace(" mod ", " % ")
    if not text or len(text) > _MAX_LENGTH:
        return None
    numbers: list[float] = []
    try:
        value = _evaluate_node(ast.parse(text.replace(",", ""), mode="eval").body, numbers)
    except (SyntaxError, ValueError, ArithmeticError, RecursionError, MemoryError):
        return None
    return (value, numbers) if math.isfinite(value) else None


def _evaluate_node(node: ast.expr, numbers: list[float]) -> float:
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        value = float(node.value) if isinstance(node.value, float) else node.value
        assert isinstance(value, (int, float))
        if abs(value) > _MAX_VALUE:
            raise ValueError
        numbers.append(value)
        return value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
        value = _evaluate_node(node.operand, numbers)
        return -value if isinstance(node.op, ast.USub) else value
    if isinstance(node, ast.BinOp):
        left, right = _evaluate_node(node.left, numbers), _evaluate_node(node.right, numbers)
        if isinstance(node.op, ast.Pow):
            if not 0 <= right <= _MAX_POWER or abs(left) > 1e6:
                raise ValueError
            result: float | complex = left**right
            if isinstance(result, complex):
                raise ValueError
        else:
            result = _OPERATORS[type(node.op)](left, right)
        if abs(result) > _MAX_VALUE:
            raise ValueError
        return float(result) if isinstance(result, float) else int(result)
    raise ValueError
