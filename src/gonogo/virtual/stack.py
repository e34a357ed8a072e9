"""Python frames as facts: whose code each belongs to, without gonogo's own."""

from __future__ import annotations

import functools
import importlib.util
import linecache
import os
import sys
import sysconfig
from pathlib import Path
from types import CodeType, FrameType, TracebackType

from gonogo.evidence.rehearsal.record import Frame, Owner

# Not resolved, since frames have the path as imported: an overlay environment may contain gonogo and torch as links.
OURS = str(Path(os.path.abspath(__file__)).parent.parent) + os.sep
# Found without importing it: a stand-in for a program that a script starts doesn't need torch, and must be fast.
_TORCH_SPEC = importlib.util.find_spec("torch")
_TORCH_FILE = _TORCH_SPEC.origin if _TORCH_SPEC is not None and _TORCH_SPEC.origin else os.devnull
_TORCH_FOLDERS = tuple(
    os.path.join(os.path.dirname(path), "") if path != os.devnull else path
    for path in dict.fromkeys((os.path.abspath(_TORCH_FILE), os.path.realpath(_TORCH_FILE)))
)
_STDLIB_FOLDERS = tuple(
    {os.path.realpath(sysconfig.get_paths()[name]) + os.sep for name in ("stdlib", "platstdlib")}
    | {str(Path(os.__file__).resolve().parent) + os.sep}
)
_MAX_FRAMES = 200


def owner_of(path: str) -> Owner:
    """The owner of a source file: torch, a library (site-packages, an overlay, the standard library) or the user."""
    if not os.path.isabs(path) and not os.path.exists(path):
        return "library"  # relative paths from Cython: pyarrow/error.pxi
    path = os.path.abspath(path)
    if path.startswith(_TORCH_FOLDERS):
        return "torch"
    inside = ("site-packages", "dist-packages")
    if any(part in path for part in inside) or path.startswith(_STDLIB_FOLDERS) or _is_in_overlay(path):
        return "library"
    return "user"


@functools.cache
def is_standard_library(path: str) -> bool:
    """True if the path is in Python's standard library or not a file at all."""
    path = os.path.abspath(path) if not path.startswith("<") else path
    if any(part in path for part in ("site-packages", "dist-packages")):
        return False
    return path.startswith(("<", *_STDLIB_FOLDERS)) and not _is_in_overlay(path)


def _is_in_overlay(path: str) -> bool:
    folders = os.environ.get("GONOGO_OVERLAYS", "").split(os.pathsep)
    return any(folder and path.startswith(folder + os.sep) for folder in folders)


def frame_of(code_path: str, line: int, function: str) -> Frame | None:
    """A frame as a fact, or None for gonogo's own and Python's internal frames."""
    if code_path.startswith(("<frozen", "<string>", OURS)) or not line:
        return None
    if code_path.endswith("runpy.py"):
        return None
    text = linecache.getline(code_path, line).strip()
    return Frame(path=code_path, line=line, function=function, text=text, owner=owner_of(code_path))


def frames_of_traceback(traceback: TracebackType | None) -> tuple[Frame, ...]:
    """The frames of an exception, outermost first."""
    found = []
    while traceback is not None:
        code = traceback.tb_frame.f_code
        frame = frame_of(code.co_filename, traceback.tb_lineno, code.co_name)
        if frame is not None:
            found.append(frame)
        traceback = traceback.tb_next
    return tuple(found[-_MAX_FRAMES:])


def frames_of_call(frame: FrameType | None = None) -> tuple[Frame, ...]:
    """The frames of a running call (by default the caller), outermost first."""
    current = frame if frame is not None else sys._getframe(1)
    found: list[Frame] = []
    while current is not None and len(found) < _MAX_FRAMES:
        made = frame_of(current.f_code.co_filename, current.f_lineno, current.f_code.co_name)
        if made is not None:
            found.append(made)
        if current.f_back is None:
            break
        current = current.f_back
    return tuple(reversed(found))


_IS_OUTSIDE_TORCH: dict[int, bool] = {}
_ASKED: list[CodeType] = []
"""Keeps code objects alive, so that no other can get an id in :data:`_IS_OUTSIDE_TORCH`."""


def current_place() -> tuple[CodeType, int] | None:
    """Code and instruction offset of the innermost frame outside torch and gonogo. Takes about a microsecond."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        known = _IS_OUTSIDE_TORCH.get(id(code))
        if known is None:
            path = code.co_filename
            known = _IS_OUTSIDE_TORCH[id(code)] = not path.startswith((OURS, *_TORCH_FOLDERS, "<"))
            _ASKED.append(code)
        if known:
            return code, frame.f_lasti
        frame = frame.f_back
    return None


@functools.cache
def place_text(code: CodeType, instruction: int) -> str:
    """``FILE:LINE FUNCTION`` for a result of :func:`current_place`."""
    lines = (line for start, end, line in code.co_lines() if start <= instruction < end)
    return f"{code.co_filename}:{next(lines, None) or code.co_firstlineno} {code.co_name}"
