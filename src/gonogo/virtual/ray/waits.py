"""Who waits for whom in a Ray cluster that stands still: callers in ``ray.get``, actors' methods, their coroutines.

Every process of the cluster is a thread here, so all of them can be asked. Nobody goes on for good if each waits in
``ray.get`` without a time limit, for a call or in an event loop without timers, and no thread of the program's own is
left that could do something else. A loop that sleeps and looks again may still be woken by what it looks for.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

from gonogo.finding.waits import StuckKind, WaitingSide
from gonogo.virtual.ray.actors import Actor
from gonogo.virtual.ray.tasks import RemoteCall
from gonogo.virtual.stack import frames_of_call
from gonogo.virtual.waits.sides import only_waits_for_work
from gonogo.virtual.waits.system_calls import call_of

_MAX_COROUTINES = 8
"""How many waiting coroutines of one actor are told."""


class EveryoneWaits(BaseException):
    """Raised in the driver if no process of the cluster goes on."""

    def __init__(self, kind: StuckKind, waits: tuple[WaitingSide, ...]) -> None:
        super().__init__("no process of the cluster goes on")
        self.kind = kind
        self.waits = waits


class WaitingGets:
    """The threads that are in ``ray.get`` without a time limit, with the answer that each waits for."""

    def __init__(self) -> None:
        self._of_thread: dict[int, Any] = {}

    def enter(self, answer: Any) -> None:
        """The calling thread begins to wait."""
        self._of_thread[threading.get_ident()] = answer

    def leave(self) -> None:
        """The calling thread has what it waited for."""
        self._of_thread.pop(threading.get_ident(), None)

    def describe(self, actors: list[Actor]) -> EveryoneWaits:
        """Who waits for whom at this moment, where nobody makes progress."""
        frames = sys._current_frames()
        running = {ident: (actor, call) for actor in actors for ident, call in actor.running.items()}
        waits = []
        for ident, answer in list(self._of_thread.items()):
            if ident in frames and not answer.done:
                who = _call_name(*running[ident]) if ident in running else "driver"
                waits.append(_wait_of_get(who, answer, frames[ident]))
        for actor in actors:
            waits += _waits_of_coroutines(actor)
        return EveryoneWaits("forever" if self._is_for_good(actors, frames) else "polling", tuple(waits))

    def _is_for_good(self, actors: list[Actor], frames: dict[int, FrameType]) -> bool:
        idle = {actor.thread for actor in actors if actor.is_idle()}
        for thread in threading.enumerate():
            if getattr(thread, "is_gonogo", False) or type(thread).__name__ == "TMonitor":
                continue
            frame = frames.get(thread.ident or 0)
            if thread.ident in self._of_thread or thread.ident in idle or frame is None or only_waits_for_work(frame):
                continue
            if call_of(thread.native_id or 0).state != "forever" or thread.name.startswith("ray::"):
                return False
        return True


def _call_name(actor: Actor, call: RemoteCall) -> str:
    return f"{actor.name}.{call.name}"


def _wait_of_get(who: str, answer: Any, frame: FrameType) -> WaitingSide:
    asked: tuple[Actor, RemoteCall] | None = answer.asked
    if asked is None:
        return WaitingSide(who, "actor", frames_of_call(frame), what="ray.get")
    actor, call = asked
    busy = () if call in actor.running.values() else tuple(_call_name(actor, one) for one in actor.running.values())
    return WaitingSide(who, "actor", frames_of_call(frame), busy, what=_call_name(actor, call))


def _waits_of_coroutines(actor: Actor) -> list[WaitingSide]:
    """The innermost places at which an actor's methods are suspended."""
    found = []
    for task in [] if actor.loop is None else asyncio.all_tasks(actor.loop):
        stack = list(_suspended(task.get_coro()))
        if stack:
            frames = tuple(frame for one in stack for frame in frames_of_call(one)[-1:])
            found.append(WaitingSide(actor.name, "coroutine", frames, what=stack[-1].f_code.co_name))
    return found[:_MAX_COROUTINES]


def _suspended(coroutine: Any) -> Iterator[FrameType]:
    """The frames of a suspended coroutine and of those that it awaits, outermost first."""
    while coroutine is not None:
        frame = getattr(coroutine, "cr_frame", None)
        if frame is None:
            return
        yield frame
        coroutine = getattr(coroutine, "cr_await", None)
