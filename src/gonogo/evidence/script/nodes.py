"""Small helpers for single nodes of a syntax tree."""

from __future__ import annotations

import ast


def is_none(node: object) -> bool:
    """Whether an expression is the literal ``None``."""
    return isinstance(node, ast.Constant) and node.value is None


def is_static_method(function: ast.AST) -> bool:
    """Whether a method's first parameter isn't an instance of its class."""
    decorators = getattr(function, "decorator_list", [])
    return any(isinstance(each, ast.Name) and each.id in ("staticmethod", "classmethod") for each in decorators)


def dotted_name(node: ast.AST) -> str:
    """An attribute chain as written: ``model.generate``; a first part that is no name is left out."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if isinstance(node, ast.Name):
        parts.append(node.id)
    return ".".join(reversed(parts))


def annotated_class(node: ast.expr | None) -> ast.expr | None:
    """The class that an annotation names: ``Optional[X]`` and ``X | None`` are X."""
    if isinstance(node, ast.Subscript):
        return node.slice if dotted_name(node.value).rpartition(".")[2] == "Optional" else None
    if isinstance(node, ast.BinOp) and isinstance(node.right, ast.Constant) and node.right.value is None:
        return node.left
    return node if isinstance(node, (ast.Name, ast.Attribute)) else None
