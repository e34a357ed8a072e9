"""What a file holds that was not found: told by the code that opened it, whose place a worker has shown."""

from __future__ import annotations

import ast
import textwrap
from pathlib import Path

from gonogo.evidence.rehearsal.record import Failure
from gonogo.evidence.script.script import Script
from gonogo.evidence.source_file import SourceFile
from gonogo.finding.errors import UserError
from gonogo.rehearse.prepared.columns import columns_in
from gonogo.rehearse.prepared.rows import TEMPLATE


def named_at(failure: Failure) -> set[str]:
    """The texts in the statement of the user's in which a failure arose: a data set's name, as it is opened there."""
    frame = failure.innermost("user")
    if frame is None:
        return set()
    try:
        script = Script(SourceFile.read(Path(frame.path)))
    except UserError:
        return set()
    if script.tree is None:
        return set()
    every = (one for one in ast.walk(script.tree) if isinstance(one, ast.stmt))
    statements = [one for one in every if one.lineno <= frame.line <= (one.end_lineno or one.lineno)]
    last = max(statements, key=lambda one: (one.lineno, -(one.end_lineno or 0)), default=None)
    found = ast.walk(last) if last is not None else iter(())
    return {node.value for node in found if isinstance(node, ast.Constant) and isinstance(node.value, str)}


def columns_at(failure: Failure) -> tuple[str, ...]:
    """The columns that the class or function asks rows for in which a failure arose; none where none can be told."""
    for frame in reversed(failure.frames):
        if frame.owner != "user":
            continue
        try:
            script = Script(SourceFile.read(Path(frame.path)))
        except UserError:
            return ()
        around = [
            node
            for node in script.nodes(ast.ClassDef, ast.FunctionDef)
            if node.lineno <= frame.line <= (node.end_lineno or node.lineno)
        ]
        if around:
            outermost = min(around, key=lambda node: node.lineno)
            lines = script.source.data.decode("utf-8", "replace").splitlines()[outermost.lineno - 1 :]
            text = textwrap.dedent("\n".join(lines[: (outermost.end_lineno or 0) - outermost.lineno + 1]))
            columns = columns_in([Script(SourceFile(frame.path, text.encode()))])
            return (*columns, *((TEMPLATE,) if f".{TEMPLATE}(" in text else ()))
    return ()
