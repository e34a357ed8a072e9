"""The conditions and loops around the frames of a stack, read from their source files."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

from msgspec.structs import replace

from gonogo.evidence.script.identifiers import assigned_targets, function_at
from gonogo.finding.divergence import EnclosingCondition, LoopExit
from gonogo.finding.frame import Frame

_MAX_TEXT_LENGTH = 120
_MAX_ORIGINS = 12
_EXIT_STATEMENTS = (ast.Return, ast.Continue, ast.Break, ast.Raise)


def conditions_around_stack(frames: Sequence[Frame]) -> Iterator[EnclosingCondition]:
    """The ``if``s and loops of the user's code that enclose the frames of a stack, outermost first."""
    for frame in frames:
        if frame.owner == "user":
            for guard in _conditions_around_line(frame.path, frame.line, _file_version(frame.path)):
                yield replace(guard, function=frame.function)


def _file_version(path: str) -> tuple[int, ...]:
    """A cache key that distinguishes files of the same name: another file, or the same one after a change."""
    try:
        state = os.stat(path)
    except OSError:
        return ()
    return state.st_dev, state.st_ino, state.st_mtime_ns


@cache
def _conditions_around_line(path: str, line: int, version: tuple[int, ...]) -> tuple[EnclosingCondition, ...]:
    try:
        with open(path, "rb") as file:
            source = file.read().decode(errors="replace")
        tree = ast.parse(source)
    except (OSError, SyntaxError, ValueError):
        return ()

    def source_text(node: ast.expr) -> str:
        text = " ".join((ast.get_source_segment(source, node) or "").split())
        return text if len(text) <= _MAX_TEXT_LENGTH else f"{text[:_MAX_TEXT_LENGTH]} …"

    def origin_texts(test: ast.expr) -> tuple[str, ...]:
        """The source of the expressions that a test's names were computed from."""
        return tuple(map(source_text, _origin_expressions(tree, test)))

    def enclosing_condition(kind: Any, node: ast.expr) -> EnclosingCondition:
        exits = [
            LoopExit(one.lineno, source_text(one), origin_texts(one)) for one in _loop_exit_tests(tree, node, kind)
        ]
        origins = origin_texts(node) if kind in ("if", "else") else ()
        return EnclosingCondition(path, node.lineno, source_text(node), kind, made_of=origins, exits=tuple(exits))

    return tuple(enclosing_condition(kind, node) for kind, node in _enclosing_conditions(tree.body, line))


def _origin_expressions(tree: ast.Module, test: ast.expr) -> list[ast.expr]:
    """The expressions last assigned to the names in ``test`` before it, and to the names in those in turn."""
    found: list[ast.expr] = []
    scope = function_at(tree, test.lineno)
    wanted = [(test, test.lineno)]
    while wanted and len(found) < _MAX_ORIGINS:
        node, line = wanted.pop(0)
        for name in dict.fromkeys(filter(None, map(_name_of, ast.walk(node)))):
            given = [
                (one.lineno, one.value)
                for one in ast.walk(scope)
                if isinstance(one, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.NamedExpr)
                and one.value is not None
                and one.lineno <= line
                and name in map(_name_of, assigned_targets(one))
            ]
            if given:
                at, value = max(given, key=lambda pair: pair[0])
                if value is not test and value not in found:
                    found.append(value)
                    wanted.append((value, at - 1))
    return found


def _name_of(node: ast.AST) -> str | None:
    """A name, or an attribute by its last part."""
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else None


def _loop_exit_tests(tree: ast.Module, test: ast.expr, kind: str) -> Iterator[ast.expr]:
    """The conditions on which the loop over, or while, ``test`` is left."""
    if kind not in ("for", "while"):
        return
    for loop in ast.walk(tree):
        own = (
            loop.iter
            if isinstance(loop, ast.For | ast.AsyncFor)
            else loop.test
            if isinstance(loop, ast.While)
            else None
        )
        if own is not test:
            continue
        for node in ast.walk(loop):
            if isinstance(node, ast.If) and isinstance(node.body[-1], ast.Break | ast.Return):
                yield node.test


def _enclosing_conditions(block: Sequence[ast.stmt], line: int) -> Iterator[tuple[str, ast.expr]]:
    """(kind, condition or iterable) of each statement that decides whether a line of a block is reached."""
    left: list[tuple[str, ast.expr]] = []
    for statement in block:
        if not statement.lineno <= line <= (statement.end_lineno or statement.lineno):
            if (
                isinstance(statement, ast.If)
                and not statement.orelse
                and isinstance(statement.body[-1], _EXIT_STATEMENTS)
            ):
                left.append(("else", statement.test))
            continue
        inner: Sequence[ast.stmt] = ()
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inner, left = (statement.body, []) if _contains_line(statement.body, line) else ((), left)
        elif isinstance(statement, ast.If | ast.While):
            inner = statement.body if _contains_line(statement.body, line) else statement.orelse
            if _contains_line(inner, line) and not _is_main_guard(statement.test):
                kind = "while" if isinstance(statement, ast.While) else "if"
                left.append((kind if inner is statement.body else "else", statement.test))
        elif isinstance(statement, ast.For | ast.AsyncFor):
            inner = statement.body if _contains_line(statement.body, line) else statement.orelse
            if inner is statement.body:
                left.append(("for", statement.iter))
        else:
            blocks = [getattr(statement, name, []) for name in ("body", "orelse", "finalbody")]
            blocks += [part.body for name in ("handlers", "cases") for part in getattr(statement, name, [])]
            inner = next((body for body in blocks if _contains_line(body, line)), ())
        yield from left
        yield from _enclosing_conditions(inner, line)
        return


def _is_main_guard(test: ast.expr) -> bool:
    """``if __name__ == "__main__"``."""
    return isinstance(test, ast.Compare) and isinstance(test.left, ast.Name) and test.left.id == "__name__"


def _contains_line(body: Sequence[ast.stmt], line: int) -> bool:
    return bool(body) and body[0].lineno <= line <= (body[-1].end_lineno or body[-1].lineno)
