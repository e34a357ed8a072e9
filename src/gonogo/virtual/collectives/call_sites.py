"""The call sites of collectives: numbered stacks, and the parameters that ZeRO gathers at them."""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable, Iterable
from types import CodeType, FrameType
from typing import Any

from gonogo.virtual.frame_variables import local_variable
from gonogo.virtual.protocol.messages import CallSite
from gonogo.virtual.stack import OURS, frame_of

_MAX_FRAMES = 60
_ZERO_FILES = ("deepspeed/runtime/zero/partition_parameters.py", "deepspeed/runtime/zero/stage3.py")
_PARAMETER_LIST_NAMES = ("params_to_reduce", "param_list", "params", "param")
"""Local variables of ZeRO's functions that hold the collective's parameters."""


class CallSites:
    """Numbers the call stacks of collectives; ``on_new`` gets a description of each new stack."""

    def __init__(self, on_new_site: Callable[[CallSite], None]) -> None:
        self._on_new = on_new_site
        self._numbers: dict[tuple[int, ...], int] = {}
        self._lists: dict[int, str | None] = {}
        """By code's identity: the local variable with ZeRO's parameters."""
        self._codes: list[CodeType] = []
        """Kept alive, so that no other takes its identity."""

    def current_site(self) -> tuple[int, tuple[int, ...]]:
        """The number of the caller's stack, and the ``ds_id`` of the parameters that the collective gathers."""
        frame: FrameType | None = sys._getframe(1)
        key: list[int] = []
        parameters: tuple[int, ...] | None = None
        known = self._lists
        while frame is not None:
            code = frame.f_code
            identity = id(code)
            try:
                variable = known[identity]
            except KeyError:
                variable = known[identity] = _zero_parameter_list_variable(code)
                self._codes.append(code)
            if variable is not None and parameters is None:
                parameters = _ds_ids(local_variable(frame, variable)) or None
            key.append(identity)
            key.append(frame.f_lasti)
            frame = frame.f_back
        stack = tuple(key)
        number = self._numbers.get(stack)
        if number is None:
            number = self._numbers[stack] = len(self._numbers)
            self._on_new(describe_site(number, sys._getframe(1)))
        return number, parameters or ()


def _zero_parameter_list_variable(code: CodeType) -> str | None:
    path = code.co_filename.replace("\\", "/")
    if not path.endswith(_ZERO_FILES):
        return None
    return next((name for name in _PARAMETER_LIST_NAMES if name in code.co_varnames or name in code.co_cellvars), None)


def _ds_ids(value: Any) -> tuple[int, ...]:
    if value is None:
        return ()
    several: Iterable[Any] = value if isinstance(value, list | tuple) else (value,)
    return tuple(number for one in several if isinstance(number := getattr(one, "ds_id", None), int))


def describe_site(number: int, frame: FrameType | None) -> CallSite:
    """Describe the stack of a frame under the given number."""
    frames = []
    functions = []
    while frame is not None:
        code = frame.f_code
        if not code.co_filename.startswith(OURS):
            functions.append(code.co_name)
        made = frame_of(code.co_filename, frame.f_lineno, code.co_name)
        if made is not None and made.owner != "torch":
            frames.append(made)
        frame = frame.f_back
    place = zlib.crc32(repr([(one.path, one.line) for one in frames]).encode())
    return CallSite(number, tuple(reversed(frames[:_MAX_FRAMES])), tuple(reversed(functions)), place)
