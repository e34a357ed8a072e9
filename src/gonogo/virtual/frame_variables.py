"""Local variables of functions that are running, read without keeping what they hold alive.

Before Python 3.13 ``frame.f_locals`` is a dictionary that stays in the frame: whoever reads it once keeps all that the
function's variables held at that moment, until the function ends or somebody reads it again. In a training loop that
is one step's logits and losses, which the program itself has let go of.
"""

from __future__ import annotations

import ctypes
import inspect
import sys
from collections.abc import Mapping
from types import FrameType
from typing import Any

_OWN_REFERENCES = 3
"""To a snapshot that nobody else has: the frame's, this module's variable, the argument of what counts them."""


def local_variables(frame: FrameType) -> Mapping[str, Any]:
    """The variables of a running function (those of a module or class body are its namespace itself), to be read."""
    held = frame.f_locals
    if not _is_snapshot(frame):
        return held
    found = dict(held)
    if sys.getrefcount(held) <= _OWN_REFERENCES:
        held.clear()
    return found


def local_variable(frame: FrameType, name: str, default: Any = None) -> Any:
    """One variable of a running function; ``default`` where it has none of that name, or no value yet."""
    held = frame.f_locals
    found = held.get(name, default)
    if _is_snapshot(frame) and sys.getrefcount(held) <= _OWN_REFERENCES:
        held.clear()
    return found


def set_local_variable(frame: FrameType, name: str, value: Any) -> None:
    """Give a variable of a running function another value."""
    held = frame.f_locals
    held[name] = value
    if _is_snapshot(frame):
        ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(frame), ctypes.c_int(0))
        if sys.getrefcount(held) <= _OWN_REFERENCES:
            held.clear()


def _is_snapshot(frame: FrameType) -> bool:
    """Whether ``f_locals`` is a copy. The program can have it as well: it is what ``locals()`` returned there."""
    return sys.version_info < (3, 13) and bool(frame.f_code.co_flags & inspect.CO_OPTIMIZED)
