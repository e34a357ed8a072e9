"""The context of a node: ``with`` statements and decorators around it, and the tests that guard it."""

from __future__ import annotations

import ast

from gonogo.evidence.script.names import NameResolver
from gonogo.evidence.script.nodes import dotted_name
from gonogo.evidence.script.syntax_index import FUNCTIONS, ScriptIndex


def contexts_around(names: NameResolver, node: ast.AST) -> tuple[str, ...]:
    """The names of ``with`` items around a node and of its function's decorators, the nearest first."""
    found: list[str] = []
    parents = names.index.parents
    child, parent = node, parents.get(node)
    while parent is not None:
        if isinstance(parent, (ast.With, ast.AsyncWith)) and isinstance(child, ast.stmt):
            for item in reversed(parent.items):
                found += _dotted_names(names, item.context_expr)
        if isinstance(parent, FUNCTIONS):
            for decorator in parent.decorator_list:
                found += _dotted_names(names, decorator)
            break
        child, parent = parent, parents.get(parent)
    return tuple(found)


def _dotted_names(names: NameResolver, node: ast.expr) -> list[str]:
    if isinstance(node, ast.IfExp):
        return [*_dotted_names(names, node.body), *_dotted_names(names, node.orelse)]
    found = names.kinds(node) or names.names(node)
    if not found:
        written = dotted_name(node.func if isinstance(node, ast.Call) else node)
        found = (f"?.{written}",) if written else ()
    return list(found)


def tests_around(index: ScriptIndex, node: ast.AST) -> tuple[ast.expr, ...]:
    """The tests that hold when a node runs, the nearest first: of ``if``, early returns and ``x and node``."""
    found: list[ast.expr] = []
    parents = index.parents
    child, parent = node, parents.get(node)
    while parent is not None:
        if isinstance(parent, ast.If) and child is not parent.test:
            found.append(_negate_test(parent.test) if _is_in_else(child, parent) else parent.test)
        elif isinstance(parent, ast.IfExp) and child is not parent.test:
            found.append(parent.test if child is parent.body else _negate_test(parent.test))
        elif isinstance(parent, ast.BoolOp):
            before = [each for each in parent.values if each is not child]
            at = next((i for i, each in enumerate(parent.values) if each is child), 0)
            negate = isinstance(parent.op, ast.Or)
            found += [_negate_test(each) if negate else each for each in before[:at]]
        if isinstance(child, ast.stmt):
            # ``if rank != 0: return`` earlier in the block: what follows only runs if that test is false.
            found += [_negate_test(leave.test) for leave in index.early_exits_before(child)]
        if isinstance(parent, (*FUNCTIONS, ast.Lambda)):
            break
        child, parent = parent, parents.get(parent)
    return tuple(found)


def _is_in_else(child: ast.AST, parent: ast.If) -> bool:
    """Whether a statement of an ``if`` is in its ``else``: by position, since a block may hold thousands of them."""
    if not parent.orelse or not isinstance(child, ast.stmt):
        return False
    first = parent.orelse[0]
    return (child.lineno, child.col_offset) >= (first.lineno, first.col_offset)


def _negate_test(test: ast.expr) -> ast.expr:
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return test.operand
    return ast.copy_location(ast.UnaryOp(op=ast.Not(), operand=test), test)
