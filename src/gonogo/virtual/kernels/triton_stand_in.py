"""Triton where it isn't installed: found by programs that can't do without, as torch's builds for GPUs bring it.

A CPU build of torch does not require Triton, every build for GPUs on Linux does. Code that has a way without it (an
import within ``try``, a question to ``find_spec``) takes that way as before; where the import would end the program,
Triton's interface is found in ``stand_ins/with_triton``, and launches are left out as with the real package.
"""

from __future__ import annotations

import ast
import functools
import linecache
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import FrameType, ModuleType

import gonogo
from gonogo.evidence.script.identifiers import last_name
from gonogo.finding import Text, translated
from gonogo.virtual.patching.patches import Patches

_PACKAGES = str(Path(__file__).parent.parent / "stand_ins" / "with_triton")
_OWN = str(Path(gonogo.__file__).parent)
_INSTALLED = translated("Triton is installed on the machine, as torch's builds for GPUs require it")
_FAILED_IMPORT = frozenset({"ImportError", "ModuleNotFoundError"})
_ANY_EXCEPTION = frozenset({"Exception", "BaseException"})


def install(patches: Patches, assume: Callable[[Text], object]) -> None:
    """Have it found after all else was asked."""
    finder = _Finder(assume)
    sys.meta_path.append(finder)
    patches.on_undo(lambda: sys.meta_path.remove(finder))


class _Finder:
    """Finds ``triton`` for an import that nothing would catch."""

    def __init__(self, assume: Callable[[Text], object]) -> None:
        self._assume = assume

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The package's place, or None."""
        if name != "triton":
            return None
        asking = sys._getframe(1)
        if _is_only_asked_for(asking) or _has_way_without(asking):
            return None
        self._assume(_INSTALLED)
        return PathFinder.find_spec(name, [_PACKAGES])


def _is_only_asked_for(frame: FrameType | None) -> bool:
    """Whether ``importlib.util.find_spec`` asks, and not an import."""
    while frame is not None and frame.f_code.co_filename.startswith("<frozen importlib"):
        if frame.f_code.co_name == "_find_and_load":
            return False
        frame = frame.f_back
    return True


def _program_frames(frame: FrameType | None) -> Iterator[FrameType]:
    """The frames of the program's and its libraries' code, the importing one first."""
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith(("<frozen ", _OWN)):
            yield frame
        frame = frame.f_back


def _has_way_without(frame: FrameType) -> bool:
    """Whether code that is running goes on when the import fails.

    A handler of failed imports may be anywhere; one of all exceptions is meant for it only where it is around an import
    itself, not where it is around the whole program.
    """
    importing = True
    for each in _program_frames(frame):
        for first, last, catches_all in _guarded_lines(each.f_code.co_filename):
            if first <= each.f_lineno <= last and (importing or not catches_all):
                return True
        importing = importing and each.f_code.co_name == "<module>"
    return False


@functools.cache
def _guarded_lines(file: str) -> tuple[tuple[int, int, bool], ...]:
    """From which line to which one a file goes on after a failed import, and whether after any exception."""
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
        names = {name for one in caught for name in _names(one)}
        if names & (_FAILED_IMPORT | _ANY_EXCEPTION):
            lines = node.body[0].lineno, node.body[-1].end_lineno or node.body[-1].lineno
            found.append((*lines, not names & _FAILED_IMPORT))
    return tuple(found)


def _names(caught: ast.expr | None) -> set[str]:
    """The classes that a handler is for."""
    if caught is None:
        return {"BaseException"}
    return {last_name(one) for one in (caught.elts if isinstance(caught, ast.Tuple) else [caught])}
