"""Whether an import that fails would end the program: whether no code on the stack handles that and goes on."""

from __future__ import annotations

import ast
import functools
import linecache
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import gonogo
from gonogo.evidence.script.identifiers import last_name

_GONOGO_FOLDER = str(Path(gonogo.__file__).parent)
_IMPORT_ERRORS = frozenset({"ImportError", "ModuleNotFoundError"})
_CATCH_ALL_EXCEPTIONS = frozenset({"Exception", "BaseException"})


def is_needed_import(caller: FrameType) -> bool:
    """Whether ``caller``, the frame that called a finder, imports something without which the program ends."""
    return not (_is_find_spec_call(caller) or _is_failure_handled(caller))


def _is_find_spec_call(frame: FrameType | None) -> bool:
    """Whether the caller is ``importlib.util.find_spec`` rather than an import."""
    while frame is not None and frame.f_code.co_filename.startswith("<frozen importlib"):
        if frame.f_code.co_name == "_find_and_load":
            return False
        frame = frame.f_back
    return True


def _program_frames(frame: FrameType | None) -> Iterator[FrameType]:
    """The frames of the program's and its libraries' code, the importing one first."""
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith(("<frozen ", _GONOGO_FOLDER)):
            yield frame
        frame = frame.f_back


def _is_failure_handled(frame: FrameType) -> bool:
    """Whether code on the stack handles a failure of this import and goes on.

    A handler for ImportError counts anywhere on the stack; one for all exceptions counts only around an import, not
    around the whole program.
    """
    importing = True
    for each in _program_frames(frame):
        for first, last, catches_all in _handled_lines(each.f_code.co_filename):
            if first <= each.f_lineno <= last and (importing or not catches_all):
                return True
        importing = importing and each.f_code.co_name == "<module>"
    return False


@functools.cache
def _handled_lines(file: str) -> tuple[tuple[int, int, bool], ...]:
    """Ranges of lines in which a file handles a failed import, and whether the handler is for any exception."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError, RecursionError):
        return ()
    found = []
    for node in ast.walk(tree):
        caught: list[ast.expr | None] = []
        if isinstance(node, ast.Try):
            caught = [handler.type for handler in node.handlers if not isinstance(handler.body[-1], ast.Raise)]
        elif isinstance(node, ast.With):
            items = [item.context_expr for item in node.items]
            calls = [item for item in items if isinstance(item, ast.Call) and last_name(item) == "suppress"]
            caught = [argument for call in calls for argument in call.args]
        else:
            continue
        names = {name for one in caught for name in _caught_names(one)}
        if names & (_IMPORT_ERRORS | _CATCH_ALL_EXCEPTIONS):
            lines = node.body[0].lineno, node.body[-1].end_lineno or node.body[-1].lineno
            found.append((*lines, not names & _IMPORT_ERRORS))
    return tuple(found)


def _caught_names(caught: ast.expr | None) -> set[str]:
    """The names of the exception classes that a handler catches."""
    if caught is None:
        return {"BaseException"}
    return {last_name(one) for one in (caught.elts if isinstance(caught, ast.Tuple) else [caught])}
