"""Finds what a training loop does only every so many steps or at its end: ``if step % 1000 == 0: save(…)``.

A rehearsal runs a few steps, and so would never reach the code behind such a test, although a real run does.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from gonogo.evidence.script.identifiers import function_at, last_name, split_identifier

Loop = ast.For | ast.AsyncFor | ast.While
_FUNCTION_NODES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_SAVE_WORDS = frozenset({"save", "saving", "checkpoint", "export", "dump"})
_EVALUATE_WORDS = frozenset(
    {"eval", "evaluate", "evaluation", "validate", "validation", "val", "test", "sample", "generate"}
)
_MAX_CALL_DEPTH = 3
_INTEGER_FUNCTIONS = frozenset({"len", "int", "max", "min"})
_ARITHMETIC_NODES = (
    *(ast.BinOp, ast.UnaryOp, ast.Compare, ast.BoolOp, ast.Constant, ast.Name, ast.Attribute, ast.Load),
    *(ast.operator, ast.unaryop, ast.cmpop, ast.boolop, ast.expr_context),
)


class LoopTest(msgspec.Struct, frozen=True, eq=False):
    """An ``if`` in a loop, after a given line, that guards saving or evaluating."""

    node: ast.If
    kind: Literal["save", "evaluate"]
    loops: tuple[Loop, ...]
    """The loops that contain both the line and the test, innermost first."""


def loop_tests_after(tree: ast.Module, line: int) -> Iterator[LoopTest]:
    """The tests that follow a line within the loops around it, in source order."""
    around = [loop for loop in loops_around(tree, line) if line >= loop.body[0].lineno]
    found: dict[ast.If, LoopTest] = {}
    for number, loop in enumerate(around):
        for node in _own_nodes(loop):
            if isinstance(node, ast.If) and node.lineno > line and node not in found:
                kind = _block_purpose(tree, node.body, _MAX_CALL_DEPTH)
                if kind is not None:
                    found[node] = LoopTest(node, kind, tuple(around[number:]))
    # A nested test comes after the one around it, which leads to both.
    yield from sorted(found.values(), key=lambda one: one.node.lineno)


def loops_around(tree: ast.Module, line: int) -> list[Loop]:
    """The loops that contain a line, in their head or body, in the same function, innermost first."""
    scope = function_at(tree, line)
    around = [node for node in _own_nodes(scope) if isinstance(node, Loop) and _contains_line(node, line)]
    return sorted(around, key=lambda loop: -loop.lineno)


def counter_names(loops: Sequence[Loop]) -> set[str]:
    """The loop counters: targets of the loops, and names that they increment."""
    found: set[str] = set()
    for loop in loops:
        found |= loop_target_names(loop)
        for node in _own_nodes(loop):
            if (
                isinstance(node, ast.AugAssign)
                and isinstance(node.op, ast.Add)
                and _constant_increment(node) is not None
            ):
                found.add(dotted_name(node.target) or "")
    return found - {""}


def loop_target_names(loop: Loop) -> set[str]:
    """The names that a ``for`` loop assigns on each iteration."""
    targets = [] if isinstance(loop, ast.While) else _flatten_target(loop.target)
    return {name for name in map(dotted_name, targets) if name is not None}


def counter_increment_between(loops: Sequence[Loop], counter: str, line: int, test: ast.If) -> int:
    """The total by which a counter is incremented between a line and a test."""
    added = {
        node.lineno: _constant_increment(node) or 0
        for loop in loops
        for node in _own_nodes(loop)
        if isinstance(node, ast.AugAssign)
        and isinstance(node.op, ast.Add)
        and dotted_name(node.target) == counter
        and line < node.lineno < test.lineno
    }
    return sum(added.values())


def conjuncts(test: ast.expr) -> list[ast.expr]:
    """The operands of a test joined by ``and``."""
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        return [part for value in test.values for part in conjuncts(value)]
    return [test]


def names_in(node: ast.expr) -> set[str]:
    """The names and dotted attributes that an expression reads, each as a whole."""
    name = dotted_name(node)
    if name is not None:
        return {name}
    return {one for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr) for one in names_in(child)}


def is_arithmetic(node: ast.expr) -> bool:
    """Whether an expression can be evaluated without calling any code of the program."""
    for one in ast.walk(node):
        if isinstance(one, ast.Call):
            if not isinstance(one.func, ast.Name) or one.func.id not in _INTEGER_FUNCTIONS or one.keywords:
                return False
        elif not isinstance(one, _ARITHMETIC_NODES):
            return False
    return True


def dotted_name(node: ast.expr) -> str | None:
    """``self.args.steps``; None for anything but a name or an attribute of one."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        owner = dotted_name(node.value)
        return f"{owner}.{node.attr}" if owner is not None else None
    return None


def _constant_increment(node: ast.AugAssign) -> int | None:
    value = node.value.value if isinstance(node.value, ast.Constant) else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _block_purpose(tree: ast.Module, body: Sequence[ast.stmt], max_depth: int) -> Literal["save", "evaluate"] | None:
    """Whether a block saves or evaluates, by the names of what it calls, followed through the file's functions."""
    called = [node for statement in body for node in ast.walk(statement) if isinstance(node, ast.Call)]
    names = [last_name(call.func) for call in called]
    for kind, reported in (("save", _SAVE_WORDS), ("evaluate", _EVALUATE_WORDS)):
        if any(reported & set(split_identifier(name)) for name in names if not name.startswith("is_")):
            return kind  # type: ignore[return-value]
    if max_depth:
        for function in tree.body:
            if isinstance(function, ast.FunctionDef) and function.name in names:
                found = _block_purpose(tree, function.body, max_depth - 1)
                if found is not None:
                    return found
    return None


def _flatten_target(target: ast.expr) -> Iterator[ast.expr]:
    if isinstance(target, ast.Tuple | ast.List):
        for one in target.elts:
            yield from _flatten_target(one)
    else:
        yield target


def _own_nodes(scope: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a function, a module or a loop, without those of nested functions."""
    pending = list(ast.iter_child_nodes(scope))
    while pending:
        node = pending.pop()
        yield node
        if not isinstance(node, _FUNCTION_NODES):
            pending += ast.iter_child_nodes(node)


def _contains_line(node: Loop, line: int) -> bool:
    last = node.body[-1]
    return node.lineno <= line <= (last.end_lineno or last.lineno)
