"""The part of a script that reads a data file: what it names there tells what the file holds."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from gonogo.evidence.rehearsal.record import Failure
from gonogo.evidence.script.script import Call, Script
from gonogo.evidence.source_file import SourceFile
from gonogo.finding import UserError

_SCOPES = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


class ReadScope:
    """The outermost class or function around the code that reads a file; the whole script if that is at its top."""

    def __init__(self, script: Script, node: ast.AST) -> None:
        self.script = script
        self.node = node
        first, last = getattr(node, "lineno", 1), getattr(node, "end_lineno", None)
        self._lines = range(first, (last if last is not None else 1 << 30) + 1)

    def contains(self, node: ast.AST) -> bool:
        """Whether a node of the script is in it."""
        return getattr(node, "lineno", 0) in self._lines

    def calls(self, *patterns: str) -> Iterator[Call]:
        """The calls in it whose callee matches a pattern of :meth:`Script.calls`."""
        return (call for call in self.script.calls(*patterns) if self.contains(call.node))

    def strings(self) -> set[str]:
        """All string constants in it."""
        nodes = ast.walk(self.node)
        return {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}


def scope_at(script: Script, line: int) -> ReadScope | None:
    """The scope around a line; None if the script can't be parsed."""
    if script.tree is None:
        return None
    around = [one for one in script.nodes(*_SCOPES) if one.lineno <= line <= (one.end_lineno or one.lineno)]
    return ReadScope(script, min(around, key=lambda one: one.lineno) if around else script.tree)


def scopes_at_failure(failure: Failure) -> Iterator[ReadScope]:
    """The scopes of the user's frames at a failure, the innermost first."""
    for frame in reversed(failure.frames):
        if frame.owner != "user":
            continue
        try:
            scope = scope_at(Script(SourceFile.read(Path(frame.path))), frame.line)
        except UserError:
            continue
        if scope is not None:
            yield scope
