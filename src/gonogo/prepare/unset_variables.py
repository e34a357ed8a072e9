"""Environment variables that the program requires, such as ``os.environ["ENTITY"]``, and that nothing sets.

Python raises ``KeyError: 'ENTITY'``, the same error as for a missing column of a row.
"""

from __future__ import annotations

import ast
import os
from pathlib import Path

from gonogo.evidence.rehearsal.failures import exception_class_name
from gonogo.evidence.rehearsal.record import Failure
from gonogo.evidence.script.script import Script
from gonogo.evidence.source_file import SourceFile
from gonogo.finding import UserError


def unset_variable(failure: Failure) -> str | None:
    """The environment variable whose absence caused the failure; None for any other failure."""
    if exception_class_name(failure) != "KeyError":
        return None
    name = failure.message.strip().strip("'\"")
    last = failure.frames[-1] if failure.frames else None
    if last is None or os.path.basename(last.path) == "os.py":
        return name if last is not None else None
    # Since Python 3.11 the os module is frozen and has no frame.
    try:
        script = Script(SourceFile.read(Path(last.path)))
    except UserError:
        return None
    requested = (node for node in script.nodes(ast.Subscript) if script.qualified(node.value) == "os.environ")
    at = (node for node in requested if node.lineno <= last.line <= (node.end_lineno or node.lineno))
    return name if any(script.field(node.slice).string in (name, None) for node in at) else None
