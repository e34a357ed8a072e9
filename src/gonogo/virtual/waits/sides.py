"""What a waiting thread waits for, and who could let it go on: read from its stack, without touching the program."""

from __future__ import annotations

import ast
import concurrent.futures._base
import functools
import linecache
import multiprocessing.process
import multiprocessing.queues
import os
import queue
import subprocess
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from types import FrameType
from typing import Any

from gonogo.finding.waits import WaitingSide, WaitKind
from gonogo.virtual.frame_variables import local_variable, local_variables
from gonogo.virtual.stack import OURS, frames_of_call
from gonogo.virtual.waits.system_calls import State

_CALLS: dict[tuple[str, str], WaitKind] = {
    (str(threading.__file__), "join"): "thread",
    (str(threading.__file__), "wait"): "event",
    (str(queue.__file__), "get"): "queue-get",
    (str(queue.__file__), "put"): "queue-put",
    (str(queue.__file__), "join"): "queue-get",
    (str(concurrent.futures._base.__file__), "result"): "future",
    (str(multiprocessing.process.__file__), "join"): "process",
    (str(multiprocessing.queues.__file__), "get"): "queue-get",
    (str(multiprocessing.queues.__file__), "put"): "queue-put",
    (str(subprocess.__file__), "wait"): "process",
}
"""The functions in which Python's own classes wait; the outermost one on the stack says for what."""
_KINDS_OF_STATES: dict[State, WaitKind] = {"forever": "lock", "child": "process", "sleeps": "poll", "shared": "lock"}
_MAX_ENDED = 256
SERVER_WAIT = "wait_until_resumed"
"""The function of a stand-in server in which a request waits."""


@dataclass
class EndedThreads:
    """The program's own threads that have ended: their names, and what each of them was given."""

    names: list[tuple[str, frozenset[int]]] = field(default_factory=list)
    have_failed: bool = False
    """Whether one of them ended with an exception."""

    def add(self, name: str, given: frozenset[int], exception: str = "") -> None:
        """Note a thread that has ended, and with which exception if it did."""
        self.have_failed |= bool(exception)
        if len(self.names) < _MAX_ENDED:
            self.names.append((f"{name}: {exception}" if exception else name, given))

    def given(self, thing: Any) -> tuple[str, ...]:
        """The threads that were given this object."""
        return tuple(name for name, given in self.names if id(thing) in given)


def objects_given(thread: threading.Thread) -> frozenset[int]:
    """The identities of what a thread is given: arguments, the object of its method, what its function encloses."""
    target = getattr(thread, "_target", None)
    owner = getattr(target, "__self__", thread)
    things = [*getattr(thread, "_args", ()), *getattr(thread, "_kwargs", {}).values(), owner, *_parts(owner)]
    cells = getattr(target, "__closure__", None) or ()
    things += [cell.cell_contents for cell in cells if cell != type(cell)()]  # without the empty ones
    return frozenset(map(id, things))


def _parts(thing: Any) -> list[Any]:
    own = getattr(thing, "__dict__", None)
    return list(islice(own.values(), 200)) if isinstance(own, dict) else []


def wait_of(
    thread: threading.Thread,
    frame: FrameType,
    state: State,
    others: Mapping[threading.Thread, FrameType],
    ended: EndedThreads,
) -> WaitingSide:
    """The wait of one thread; ``others`` are the program's other threads."""
    kind, thing = _kind_and_object(frame, state)
    whom: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    if kind in ("thread", "process"):
        whom = (str(getattr(thing, "name", "")),) if thing is not None else ()
    elif kind == "lock" and thing is not None:
        whom = tuple(other.name for other, stack in others.items() if _holds(stack, thing))
    elif thing is not None:
        whom = tuple(other.name for other, stack in others.items() if _knows(stack, thing))
        gone = ended.given(thing)
    return WaitingSide(thread.name, kind, frames_of_call(frame), whom, gone)


def _kind_and_object(frame: FrameType, state: State) -> tuple[WaitKind, Any]:
    """What the innermost calls of a stack wait for, and the object: a queue, a thread, a lock."""
    found: tuple[WaitKind, Any] | None = None
    at: FrameType | None = frame
    while at is not None:
        code = at.f_code
        if code.co_filename.startswith(OURS):
            if code.co_name == SERVER_WAIT:
                found = ("server", None)
        elif (kind := _CALLS.get((code.co_filename, code.co_name))) is not None:
            found = (kind, local_variable(at, "self"))
        elif code.co_filename not in _FILES and not code.co_filename.startswith(_MULTIPROCESSING):
            break
        at = at.f_back
    if found is not None:
        return found
    kind = _KINDS_OF_STATES.get(state, "other")
    return kind, _object_of_call(at) if kind == "lock" and at is not None else None


_FILES = frozenset(path for path, _ in _CALLS)
_MULTIPROCESSING = os.path.join(os.path.dirname(str(multiprocessing.process.__file__)), "")


def only_waits_for_work(frame: FrameType) -> bool:
    """Whether a thread of a pool waits for something to do."""
    code = frame.f_code
    return code.co_name == "_worker" and code.co_filename.endswith("concurrent/futures/thread.py")


# -- the program's own expressions -------------------------------------------------------------------------------------


def _object_of_call(frame: FrameType) -> Any:
    """The object of which the frame's current instruction calls a method, or which it enters; None if unknown."""
    positions = getattr(frame.f_code, "co_positions", None)
    if positions is None:  # before Python 3.11
        return None
    line, last, start, end = next(islice(positions(), frame.f_lasti // 2, None), (None,) * 4)
    if line is None or line != last or start is None or end is None:
        return None
    text = linecache.getline(frame.f_code.co_filename, line).encode()[start:end].decode("utf-8", "replace")
    try:
        node = ast.parse(text, mode="eval").body
    except SyntaxError:
        return None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        node = node.func.value
    return _value(node, frame)


def _value(node: ast.expr, frame: FrameType) -> Any:
    """The value of a name or of attributes of one, read without running any code of the program; else None."""
    if isinstance(node, ast.Name):
        own = local_variables(frame)
        return own[node.id] if node.id in own else frame.f_globals.get(node.id)
    if isinstance(node, ast.Attribute):
        owner = _value(node.value, frame)
        return getattr(owner, "__dict__", {}).get(node.attr) if owner is not None else None
    return None


def _stack(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _holds(frame: FrameType, lock: Any) -> bool:
    """Whether a frame of this stack is inside ``with`` for the lock."""
    for one in _stack(frame):
        for statement in _withs(one.f_code.co_filename):
            inside = statement.body[0].lineno <= one.f_lineno <= (statement.end_lineno or 0)
            if inside and statement.lineno >= one.f_code.co_firstlineno:
                for item in statement.items:
                    if _value(item.context_expr, one) is lock:
                        return True
    return False


@functools.cache
def _withs(path: str) -> tuple[ast.With, ...]:
    try:
        tree = ast.parse("".join(linecache.getlines(path)))
    except (SyntaxError, ValueError):
        return ()
    return tuple(node for node in ast.walk(tree) if isinstance(node, ast.With))


def _knows(frame: FrameType, thing: Any) -> bool:
    """Whether a variable of this stack, or an attribute of one, is the object."""
    for one in _stack(frame):
        if one.f_code.co_filename.startswith(OURS):
            continue
        for value in local_variables(one).values():
            if value is thing or any(part is thing for part in _parts(value)):
                return True
    return False
