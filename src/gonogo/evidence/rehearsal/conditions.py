"""The conditions and loops that a stack stands in, read from the source files of its frames."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

from msgspec.structs import replace

from gonogo.finding.divergence import EnclosingCondition
from gonogo.finding.frame import Frame

_TEXT_SHOWN = 120
_LEAVES = (ast.Return, ast.Continue, ast.Break, ast.Raise)


def guards_of(frames: Sequence[Frame]) -> Iterator[EnclosingCondition]:
    """The conditions and loops of the user's code that a stack stands in, outermost first."""
    for frame in frames:
        if frame.owner == "user":
            for guard in _guards_at(frame.path, frame.line, _version(frame.path)):
                yield replace(guard, function=frame.function)


def _version(path: str) -> tuple[int, ...]:
    """Tells one file from another of the same name, met in another folder or once it was changed."""
    try:
        state = os.stat(path)
    except OSError:
        return ()
    return state.st_dev, state.st_ino, state.st_mtime_ns


@cache
def _guards_at(path: str, line: int, version: tuple[int, ...]) -> tuple[EnclosingCondition, ...]:
    try:
        with open(path, "rb") as file:
            source = file.read().decode(errors="replace")
        tree = ast.parse(source)
    except (OSError, SyntaxError, ValueError):
        return ()

    def guard(kind: Any, node: ast.expr) -> EnclosingCondition:
        text = " ".join((ast.get_source_segment(source, node) or "").split())
        return EnclosingCondition(
            path, node.lineno, text if len(text) <= _TEXT_SHOWN else f"{text[:_TEXT_SHOWN]} …", kind
        )

    return tuple(guard(kind, node) for kind, node in _around(tree.body, line))


def _around(block: Sequence[ast.stmt], line: int) -> Iterator[tuple[str, ast.expr]]:
    """(kind, condition or what is looped over) of what decides whether a line of a block is reached."""
    left: list[tuple[str, ast.expr]] = []
    for statement in block:
        if not statement.lineno <= line <= (statement.end_lineno or statement.lineno):
            if isinstance(statement, ast.If) and not statement.orelse and isinstance(statement.body[-1], _LEAVES):
                left.append(("else", statement.test))
            continue
        inner: Sequence[ast.stmt] = ()
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inner, left = (statement.body, []) if _holds(statement.body, line) else ((), left)
        elif isinstance(statement, ast.If | ast.While):
            inner = statement.body if _holds(statement.body, line) else statement.orelse
            if _holds(inner, line) and not _is_main(statement.test):
                kind = "while" if isinstance(statement, ast.While) else "if"
                left.append((kind if inner is statement.body else "else", statement.test))
        elif isinstance(statement, ast.For | ast.AsyncFor):
            inner = statement.body if _holds(statement.body, line) else statement.orelse
            if inner is statement.body:
                left.append(("for", statement.iter))
        else:
            blocks = [getattr(statement, name, []) for name in ("body", "orelse", "finalbody")]
            blocks += [part.body for name in ("handlers", "cases") for part in getattr(statement, name, [])]
            inner = next((body for body in blocks if _holds(body, line)), ())
        yield from left
        yield from _around(inner, line)
        return


def _is_main(test: ast.expr) -> bool:
    """``if __name__ == "__main__"``."""
    return isinstance(test, ast.Compare) and isinstance(test.left, ast.Name) and test.left.id == "__name__"


def _holds(body: Sequence[ast.stmt], line: int) -> bool:
    return bool(body) and body[0].lineno <= line <= (body[-1].end_lineno or body[-1].lineno)
