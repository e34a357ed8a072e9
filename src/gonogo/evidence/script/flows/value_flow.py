"""A backward slice of what ``backward`` is called on: the statements that compute it, followed by names.

A backward fails because of what went into the loss, far from the line that raises. The slice follows the names of the
calling function, what they were computed from, and the return values of functions in the same files.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

from gonogo.evidence.script.identifiers import assigned_targets, function_at

_FUNCTION_NODES = (ast.FunctionDef, ast.AsyncFunctionDef)
_LOSS_METHODS = frozenset({"compute_loss", "training_step"})
"""Methods that users override to return the loss on which a library's training loop calls backward."""
_MAX_STATEMENTS = 200

LineRange = tuple[str, int, int]
"""A file's path, and the first and the last line of a statement."""


def statements_behind_backward(trees: Mapping[str, ast.Module], path: str, line: int) -> list[LineRange]:
    """The statements that compute the loss of the ``backward`` at this line; empty if there is none."""
    tree = trees.get(path)
    statement = _statement_at(tree, line) if tree is not None else None
    values = [] if statement is None else list(_backward_inputs(statement))
    return _BackwardSlice(trees).statements_behind(path, line, values) if values else []


def statements_behind_losses(trees: Mapping[str, ast.Module]) -> list[LineRange]:
    """The statements that compute the losses that user methods return to a library's training loop."""
    followed = _BackwardSlice(trees)
    for path, function in _iter_functions(trees):
        if function.name in _LOSS_METHODS:
            followed.add_return_value(path, function)
    return followed.found


def _backward_inputs(statement: ast.stmt) -> Iterator[ast.expr]:
    """``loss`` of ``loss.backward()``, ``engine.backward(loss)`` and ``scaler.scale(loss).backward()``."""
    for node in ast.walk(statement):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "backward":
            yield from node.args or [node.func.value]


class _BackwardSlice:
    """The statements reached by following names backwards, each once."""

    def __init__(self, trees: Mapping[str, ast.Module]) -> None:
        self.found: list[LineRange] = []
        self._trees = trees
        self._seen: set[ast.AST] = set()

    def statements_behind(self, path: str, line: int, values: Sequence[ast.expr]) -> list[LineRange]:
        """The statements that compute values used at a line."""
        scope = function_at(self._trees[path], line)
        for value in values:
            self._follow_value(path, scope, value, line)
        return self.found

    def add_return_value(self, path: str, function: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        """Add the statements that compute a function's return value."""
        if function in self._seen:
            return
        self._seen.add(function)
        for node in ast.walk(function):
            if isinstance(node, ast.Return) and node.value is not None:
                self._add_statement(path, node)
                self._follow_value(path, function, node.value, node.lineno)

    def _follow_value(self, path: str, scope: ast.AST, value: ast.expr, line: int) -> None:
        for name in dict.fromkeys(_names_in(value)):
            for node in _bindings(scope, name, line):
                if node not in self._seen and node.value is not None:
                    self._seen.add(node)
                    self._add_statement(path, node)
                    self._follow_value(path, scope, node.value, node.lineno - 1)
        for call in (node for node in ast.walk(value) if isinstance(node, ast.Call)):
            called = _name_of(call.func)
            for where, function in _iter_functions(self._trees):
                if function.name == called and called != "__init__" and len(self.found) < _MAX_STATEMENTS:
                    self.add_return_value(where, function)

    def _add_statement(self, path: str, node: ast.stmt) -> None:
        if len(self.found) < _MAX_STATEMENTS:
            self.found.append((path, node.lineno, node.end_lineno or node.lineno))


Binding = ast.Assign | ast.AnnAssign | ast.AugAssign


def _bindings(scope: ast.AST, name: str, line: int) -> Iterator[Binding]:
    """Assignments that may define ``name`` at ``line``, searched backwards up to one that always executes."""
    nodes = [
        node
        for node in ast.walk(scope)
        if isinstance(node, Binding) and node.lineno <= line and name in map(_name_of, assigned_targets(node))
    ]
    for node in sorted(nodes, key=lambda one: -one.lineno):
        yield node
        if not isinstance(node, ast.AugAssign) and _shares_block_with(scope, node, line):
            return


def _shares_block_with(scope: ast.AST, node: ast.stmt, line: int) -> bool:
    """Whether a line is only reached through a statement, which is in a block around the line."""
    for owner in ast.walk(scope):
        blocks = [getattr(owner, field, None) for field in ("body", "orelse", "finalbody")]
        for block in blocks:
            if isinstance(block, list) and node in block:
                return bool(block[0].lineno <= line <= (block[-1].end_lineno or block[-1].lineno))
    return False


def _names_in(value: ast.expr) -> Iterator[str]:
    """The names from which a value is computed: not those of callees, but the receivers of methods."""
    pending: list[ast.AST] = [value]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
            pending.append(node.value)
        elif isinstance(node, ast.Call):
            pending += [*node.args, *(keyword.value for keyword in node.keywords)]
            if isinstance(node.func, ast.Attribute) and not isinstance(node.func.value, ast.Name):
                pending.append(node.func.value)  # (a + b).mean()
            elif isinstance(node.func, ast.Attribute) and not node.args:
                pending.append(node.func.value)  # extra.sum()
        else:
            pending += ast.iter_child_nodes(node)


def _name_of(node: ast.AST) -> str | None:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else None


def _iter_functions(trees: Mapping[str, ast.Module]) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, _FUNCTION_NODES):
                yield path, node


def _statement_at(tree: ast.Module, line: int) -> ast.stmt | None:
    """The innermost statement that a line is part of."""
    around = [n for n in ast.walk(tree) if isinstance(n, ast.stmt) and n.lineno <= line <= (n.end_lineno or n.lineno)]
    return max(around, key=lambda node: (node.lineno, -(node.end_lineno or node.lineno)), default=None)
