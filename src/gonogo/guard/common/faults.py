"""Internal errors of the guard: each disables the part in which it occurs, is reported once, and stays contained."""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from gonogo.finding import translated

Function = TypeVar("Function", bound=Callable[..., Any])

off: set[str] = set()
"""The parts that are disabled."""
_listeners: list[Callable[[str, BaseException], None]] = []
_announced = threading.Event()
_reporting = threading.local()

_GUARD_FAULT = translated(
    "gonogo: internal error in the guard ({what}); {part} is no longer watched in this process, but training continues"
)


def harmless(part: str) -> Callable[[Function], Function]:
    """Decorate a function of the guard to return None on any error, and always after an error in its part."""

    def decorate(function: Function) -> Function:
        @functools.wraps(function)
        def guarded(*arguments: Any, **named: Any) -> Any:
            if part in off:
                return None
            try:
                return function(*arguments, **named)
            except Exception as error:
                disable_part(part, error)
                return None

        return guarded  # type: ignore[return-value]

    return decorate


def disable_part(part: str, error: BaseException) -> None:
    """Disable a part after an internal error, and report it, at most once per process."""
    off.add(part)
    if getattr(_reporting, "telling", False):
        return
    _reporting.telling = True
    try:
        if not _announced.is_set():
            _announced.set()
            what = f"{type(error).__name__}: {error}"[:300].replace("\n", " ")
            print(_GUARD_FAULT.format(what=what, part=part).in_language(language), file=sys.stderr, flush=True)
        for listener in _listeners:
            listener(part, error)
    except Exception:  # standard error may be closed
        return
    finally:
        _reporting.telling = False


def add_fault_listener(listener: Callable[[str, BaseException], None]) -> None:
    """Register a callback for internal errors."""
    _listeners.append(listener)


language = "en"
"""The language of the message."""
