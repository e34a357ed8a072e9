"""Terms of a loss that are multiplied by zero, and how to remove them without changing the loss.

``loss = loss + 0.0 * sum(p.sum() for p in adapter.parameters())`` adds nothing but a use of the parameters.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from gonogo.evidence.script.script import Script
from gonogo.evidence.script.syntax_index import FUNCTIONS
from gonogo.finding import Edit

_PURE_FUNCTIONS = frozenset(
    {
        *("sum", "mean", "norm", "square", "abs", "pow", "view", "reshape", "flatten", "float", "to", "stack", "cat"),
        *("parameters", "named_parameters", "list", "filter", "zeros", "tensor", "detach", "values", "items"),
    }
)
_ATOMIC_NODES = (ast.Name, ast.Attribute, ast.Call, ast.Subscript, ast.Constant)


class ZeroTerm(msgspec.Struct, frozen=True, eq=False):
    """A loss term that is multiplied by zero: whole ``statements``, or ``part`` of a sum."""

    statements: tuple[ast.stmt, ...]
    part: tuple[ast.BinOp, ast.expr] | None = None
    """The sum, and the side of it that stays."""

    def removal(self, script: Script) -> tuple[Edit, ...]:
        """The edits that remove the term; empty if that isn't possible."""
        if self.part is not None:
            whole, stays = self.part
            text = script.place(stays).text
            plain = isinstance(stays, _ATOMIC_NODES) or (isinstance(stays, ast.BinOp) and stays is whole.left)
            edits = [script.replacing(whole, text if plain else f"({text})")]
        else:
            edits = [script.removing_statement(each) for each in self.statements]
        made = tuple(edit for edit in edits if edit is not None)
        return made if len(made) == len(edits) else ()


def find_zero_term(script: Script, node: ast.expr, statement: ast.stmt) -> ZeroTerm | None:
    """How to remove an expression that is multiplied by zero; None if it isn't, or if other code depends on it."""
    name = _bound_name(statement)
    found = _variable_removal(script, name, statement) if name is not None else None
    if found is None:
        product = _product_with_zero(script, node)
        found = _term_removal(script, product, statement) if product is not None else None
    return found


def _product_with_zero(script: Script, node: ast.expr) -> ast.expr | None:
    """The outermost product with zero that contains an expression, or that the expression consists of."""
    found: ast.expr | None = node if _sums_zeros(node) else None
    current: ast.expr = node
    while True:
        parent = script.parent(current)
        if not isinstance(parent, ast.BinOp) or not isinstance(parent.op, (ast.Mult, ast.Add, ast.Sub)):
            return found
        if isinstance(parent.op, ast.Mult):
            if _is_zero(parent.left) or _is_zero(parent.right) or found is current:
                found = parent
        elif found is not None:
            return found
        current = parent


def _is_zero(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) in (int, float) and node.value == 0


def _sums_zeros(node: ast.expr) -> bool:
    """``sum(0.0 * p.sum() for p in ...)``."""
    if (
        not isinstance(node, ast.Call)
        or not node.args
        or not isinstance(node.args[0], (ast.GeneratorExp, ast.ListComp))
    ):
        return False
    element = node.args[0].elt
    return (
        isinstance(element, ast.BinOp)
        and isinstance(element.op, ast.Mult)
        and (_is_zero(element.left) or _is_zero(element.right))
    )


def _term_removal(script: Script, term: ast.expr, statement: ast.stmt) -> ZeroTerm | None:
    parent = script.parent(term)
    if isinstance(statement, ast.AugAssign) and parent is statement and isinstance(statement.op, (ast.Add, ast.Sub)):
        return _remove_with_empty_blocks(script, [statement])
    if isinstance(parent, ast.BinOp) and isinstance(parent.op, (ast.Add, ast.Sub)):
        if parent.left is term and isinstance(parent.op, ast.Sub):
            return None
        stays = parent.right if parent.left is term else parent.left
        target = statement.targets[0] if isinstance(statement, ast.Assign) and len(statement.targets) == 1 else None
        if script.parent(parent) is statement and target is not None and _is_same_name(target, stays):
            return _remove_with_empty_blocks(script, [statement])
        return ZeroTerm((), (parent, stays))
    return None


def _is_same_name(a: ast.expr, b: ast.expr) -> bool:
    if isinstance(a, ast.Name) and isinstance(b, ast.Name):
        return a.id == b.id
    if isinstance(a, ast.Attribute) and isinstance(b, ast.Attribute):
        return a.attr == b.attr and _is_same_name(a.value, b.value)
    return False


def _bound_name(statement: ast.stmt) -> str | None:
    """The variable that a statement assigns without doing anything else."""
    target: ast.expr | None = None
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        target = statement.targets[0]
    elif isinstance(statement, ast.AugAssign) and isinstance(statement.op, (ast.Add, ast.Sub)):
        target = statement.target
    return target.id if isinstance(target, ast.Name) else None


def _variable_removal(script: Script, name: str, statement: ast.stmt) -> ZeroTerm | None:
    """Remove a variable that only serves as a zero term in a sum: ``dummy = ...; loss += 0 * dummy``."""
    known, key = script.cached_result(_known_removals), (name, script.enclosing_function(statement))
    if key not in known:
        known[key] = _find_variable_removal(script, *key)
    return known[key]


def _known_removals(script: Script) -> dict[tuple[str, ast.AST | None], ZeroTerm | None]:
    """Filled by :func:`_variable_removal`, which is asked the same for each use of a variable."""
    return {}


def _find_variable_removal(script: Script, name: str, function: ast.AST | None) -> ZeroTerm | None:
    uses = list(_name_uses(script, name, function))
    all_zero = _is_all_zero(script, name, uses)
    group: dict[ast.stmt, None] = {}
    for use in uses:
        where = script.statement(use)
        if where is None or isinstance(use.ctx, ast.Del):
            return None
        if _bound_name(where) == name:
            if not _is_pure(where):
                return None
            group[where] = None
            continue
        product = _product_with_zero(script, use) or (use if all_zero else None)
        taken = _term_removal(script, product, where) if product is not None else None
        if taken is None or taken.part is not None:
            return None
        group |= dict.fromkeys(taken.statements)
    used = any(_bound_name(each) != name for each in group)
    return _remove_with_empty_blocks(script, group) if used else None


def _is_pure(statement: ast.stmt) -> bool:
    """Whether a statement only computes a number, so that it can be removed without side effects."""
    calls = [each for each in ast.walk(statement) if isinstance(each, ast.Call)]
    return all(_last_part(call.func) in _PURE_FUNCTIONS for call in calls)


def _last_part(func: ast.expr) -> str:
    return func.attr if isinstance(func, ast.Attribute) else func.id if isinstance(func, ast.Name) else ""


def _is_all_zero(script: Script, name: str, uses: Sequence[ast.Name]) -> bool:
    """Whether each value of a variable is zero, a product with zero, or adds one to it."""
    for use in uses:
        if not isinstance(use.ctx, ast.Store):
            continue
        where = script.statement(use)
        value = where.value if isinstance(where, (ast.Assign, ast.AugAssign)) else None
        if value is None or not (_is_zero(value) or _sums_zeros(value) or _is_product_with_zero(value, name)):
            return False
    return True


def _is_product_with_zero(value: ast.expr, name: str) -> bool:
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mult):
        return _is_zero(value.left) or _is_zero(value.right)
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add):
        sides = [each for each in (value.left, value.right) if not (isinstance(each, ast.Name) and each.id == name)]
        return all(_is_product_with_zero(each, name) or _sums_zeros(each) for each in sides)
    return False


def _name_uses(script: Script, name: str, function: ast.AST | None) -> Iterator[ast.Name]:
    for node in script.nodes(ast.Name):
        if node.id == name and script.enclosing_function(node) is function:
            yield node


def _remove_with_empty_blocks(script: Script, statements: Iterable[ast.stmt]) -> ZeroTerm | None:
    """Remove statements with the loops and conditions left empty by it; None if another block would be left empty."""
    group = dict.fromkeys(statements)
    waiting = list(dict.fromkeys(script.parent(each) for each in group))
    while waiting:
        parent = waiting.pop()
        if not isinstance(parent, ast.stmt) or not all(other in group for other in getattr(parent, "body", [])):
            continue
        if isinstance(parent, (*FUNCTIONS, ast.ClassDef, ast.With, ast.Try)) or getattr(parent, "orelse", None):
            if len(parent.body) > 1:  # type: ignore[attr-defined]
                return None
            continue
        for other in parent.body:  # type: ignore[attr-defined]
            del group[other]
        group[parent] = None
        waiting.append(script.parent(parent))
    return ZeroTerm(tuple(sorted(group, key=lambda each: each.lineno)))
