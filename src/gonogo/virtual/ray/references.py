"""Object references: the future result of a task or an actor's method, for ``get``, ``wait`` and ``await``."""

from __future__ import annotations

import _thread
import asyncio
import os
from collections.abc import Callable
from typing import Any

from gonogo.virtual.ray.object_transfer import PickledObject, unpack
from gonogo.virtual.ray.turns import TurnScheduler


class PendingResult:
    """A value or an exception that is available now or later."""

    def __init__(self) -> None:
        self.done = False
        self.never = ""
        """Why it will never be available, if that is known."""
        self.if_nobody_runs: Callable[[], str] = str
        """Returns why it will never be available if no other process makes progress any more."""
        self.asked: Any = None
        """The actor and the call that give it, for an actor's method."""
        self._value: PickledObject | None = None
        self._error: BaseException | None = None
        self._waiting: list[Callable[[], object]] = []

    def set(self, value: PickledObject | None, error: BaseException | None = None) -> None:
        """Set the result."""
        self._value, self._error, self.done = value, error, True
        waiting, self._waiting = self._waiting, []
        for call in waiting:
            call()

    def call_when_done(self, call: Callable[[], object]) -> None:
        """Have whoever sets the result run ``call``, or run it immediately if the result is available."""
        if self.done:
            call()
        else:
            self._waiting.append(call)

    def receive_copy(self) -> Any:
        """A copy for the receiver. Raises what the task raised."""
        if self._error is not None:
            raise self._error
        return unpack(self._value) if self._value is not None else None


def reference_class(ray: Any, turn_scheduler: TurnScheduler) -> type:
    """A subclass of Ray's own class that contacts no daemon."""

    class Reference(ray.ObjectRef):  # type: ignore[misc]
        """An object reference whose result is a :class:`PendingResult`."""

        def __init__(self) -> None:
            super().__init__(os.urandom(28), skip_adding_local_ref=True)
            self.answer = PendingResult()

        def __reduce__(self) -> Any:
            raise TypeError("a reference is handed over as it is")

        def future(self) -> Any:
            """A ``concurrent.futures.Future``."""
            import concurrent.futures

            future: Any = concurrent.futures.Future()

            def settle_future() -> None:
                try:
                    future.set_result(self.answer.receive_copy())
                except BaseException as error:
                    future.set_exception(error)

            self.answer.call_when_done(settle_future)
            return future

        def as_future(self, _internal: bool = False) -> Any:
            """A future of the running event loop."""
            loop = asyncio.get_event_loop()
            future = loop.create_future()

            def settle_future() -> None:
                if future.done():
                    return
                try:
                    future.set_result(self.answer.receive_copy())
                except BaseException as error:
                    future.set_exception(error)

            self.answer.call_when_done(lambda: loop.call_soon_threadsafe(settle_future))
            return future

        def __await__(self) -> Any:
            return self.as_future().__await__()

    return Reference


def wait_until_available(
    answer: PendingResult, turn_scheduler: TurnScheduler, timeout: float | None = None, is_progress: bool = True
) -> bool:
    """Wait for the answer; returns False on timeout. See ``TurnScheduler.without_turn`` for ``is_progress``."""
    if answer.done:
        return True
    gate = _thread.allocate_lock()
    gate.acquire()
    answer.call_when_done(lambda: gate.release() if gate.locked() else None)
    return turn_scheduler.wait(gate, timeout, is_progress)
