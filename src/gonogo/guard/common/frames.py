"""Python stacks as records: the owner of each frame's code, without frames of the guard itself."""

from __future__ import annotations

import linecache
import os
import sys
import sysconfig
import threading
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Any

from gonogo.evidence.guarded.records import ThreadStack
from gonogo.finding.frame import Frame, Owner

GONOGO = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep
_STDLIB_FOLDERS = tuple(
    {os.path.realpath(sysconfig.get_paths()[name]) + os.sep for name in ("stdlib", "platstdlib")}
    | {os.path.dirname(os.path.abspath(os.__file__)) + os.sep}
)
_PACKAGE_FOLDER_PARTS = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
_MAX_FRAMES = 120


def code_owner(path: str) -> Owner:
    """The owner of a file's code: torch, a library (including the standard library) or the user."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.__file__ and path.startswith(os.path.dirname(torch.__file__) + os.sep):
        return "torch"
    return (
        "library" if any(part in path for part in _PACKAGE_FOLDER_PARTS) or path.startswith(_STDLIB_FOLDERS) else "user"
    )


def frame_of(path: str, line: int, function: str) -> Frame | None:
    """A frame as a record; None for the guard's own frames, and for Python's import and runpy machinery."""
    if path.startswith(("<frozen", GONOGO)) or path.endswith(f"{os.sep}runpy.py"):
        return None
    text = linecache.getline(path, line).strip()[:200] if line else ""
    return Frame(path, line, function, text, code_owner(path))


def frames_of_traceback(traceback: TracebackType | None) -> tuple[Frame, ...]:
    """The frames of an exception, outermost call first."""
    found = []
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if frame := frame_of(code.co_filename, traceback.tb_lineno, code.co_name):
            found.append(frame)
        traceback = traceback.tb_next
    return tuple(found[-_MAX_FRAMES:])


def frames_of_stack(innermost_frame: FrameType | None) -> tuple[Frame, ...]:
    """The frames of a running call, outermost call first."""
    made = (
        frame_of(one.f_code.co_filename, one.f_lineno or 0, one.f_code.co_name) for one in iter_callers(innermost_frame)
    )
    return tuple(reversed([frame for frame in made if frame is not None]))


def iter_callers(frame: FrameType | None) -> Iterator[FrameType]:
    """A frame and its callers, innermost first, up to a limit."""
    count = 0
    while frame is not None and count < _MAX_FRAMES:
        yield frame
        frame = frame.f_back
        count += 1


def all_threads() -> tuple[ThreadStack, ...]:
    """The stacks of all Python threads but this one, the main thread first."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    main, here = threading.main_thread().ident, threading.get_ident()
    frames: dict[int, Any] = sys._current_frames()
    order = sorted((ident for ident in frames if ident != here), key=lambda ident: ident != main)
    return tuple(ThreadStack(names.get(ident) or str(ident), frames_of_stack(frames[ident])) for ident in order[:40])


def main_frame() -> FrameType | None:
    """The innermost frame of the main thread."""
    ident = threading.main_thread().ident
    return sys._current_frames().get(ident) if ident is not None else None
