"""Actors: an instance in its own process, whose methods run one after another or on its event loop."""

from __future__ import annotations

import _thread
import asyncio
import functools
import inspect
import os
import threading
from collections.abc import Callable
from typing import Any

from gonogo.virtual.ray.cluster import RayPlacement
from gonogo.virtual.ray.object_transfer import process_local_class
from gonogo.virtual.ray.process import RayProcess
from gonogo.virtual.ray.tasks import CallRunner, RemoteCall, runtime_env_variables
from gonogo.virtual.ray.turns import RehearsalEnded


class Actor:
    """An actor: an instance, and the thread that runs its methods."""

    def __init__(
        self, runner: CallRunner, kind: type, name: str, options: dict[str, Any], creation_call: RemoteCall
    ) -> None:
        self.runner = runner
        self.kind = kind
        self.name = name
        self.options = options
        self.id = os.urandom(16)
        self.process: RayProcess | None = None
        self.group: Any = None
        self.handle: Any = None
        self.place: RayPlacement | None = None
        self.wanted: dict[str, float] = {}
        self._creation = creation_call
        self._instance: Any = None
        self._calls: list[RemoteCall] = []
        self._idle: Any = None
        self.loop: asyncio.AbstractEventLoop | None = None
        self.thread = 0
        """The thread that runs its methods or its event loop."""
        self.running: dict[int, RemoteCall] = {}
        """By thread, the call that it runs."""
        self.dead: BaseException | None = None
        self.never = ""
        several = int(options.get("max_concurrency") or 1)
        self.is_async = any(
            inspect.iscoroutinefunction(one) or inspect.isasyncgenfunction(one) for one in _member_functions(kind)
        )
        self._several = several if not self.is_async else 1

    def start(self, place: RayPlacement) -> None:
        """Start the actor's process once it has been placed."""
        self.place, self.group = place, place.group
        cluster = self.runner.cluster
        self.process = cluster.create_process(
            self.name, place, runtime_env_variables(self.options), hide_other_gpus=True
        )
        cluster.machine.packages.add(self.kind.__module__.partition(".")[0])
        run = self._run_async_calls if self.is_async else self._run_calls
        self.runner.run_as_process(self.process, self.name, run)

    def is_idle(self) -> bool:
        """Whether its thread waits for a call, or its event loop has nothing to do and no timer."""
        if self.loop is None:
            return self._idle is not None and self._idle.locked() and self.thread not in self.running
        loop: Any = self.loop
        return not loop._ready and all(timer._cancelled for timer in loop._scheduled)

    def submit(self, call: RemoteCall) -> None:
        """Queue a method call."""
        if self.dead is not None:
            self.runner.fail(call, self.dead)
        elif self.never:
            for reference in call.references:
                reference.answer.never = self.never
        elif self.loop is not None:
            self.loop.call_soon_threadsafe(self._begin_call, call)
        else:
            self._calls.append(call)
            if self._idle is not None and self._idle.locked():
                self._idle.release()

    def mark_unschedulable(self, reason: str) -> None:
        """Fail the actor, since the cluster has no place for it."""
        self.never = reason
        for call in (self._creation, *self._calls):
            for reference in call.references:
                reference.answer.never = reason

    def kill(self) -> None:
        """``ray.kill``: end its process, and release its resources."""
        if self.dead is None:
            self.dead = self.runner.ray.exceptions.ActorDiedError()
            self._instance = None
            waiting, self._calls = self._calls, []
            for call in waiting:
                self.runner.fail(call, self.dead)
            if self.loop is not None:
                self.loop.call_soon_threadsafe(self.loop.stop)
            elif self._idle is not None and self._idle.locked():
                self._idle.release()
            if self.place is not None:
                self.place.give_back()

    def _create_instance(self) -> bool:
        runner = self.runner
        try:
            runner.wait_for_arguments(self._creation)
            args, kwargs = runner.cluster.resolve_arguments(self._creation.sent)
            kind: Any = process_local_class(self.kind, runner.cluster.passed)
            self._instance = kind.__new__(kind)
            begun = kind.__init__(self._instance, *args, **kwargs)  # may be a coroutine, which Ray allows
            if inspect.isawaitable(begun):
                asyncio.get_event_loop().run_until_complete(begun)
        except RehearsalEnded:
            raise
        except BaseException as error:
            runner.fail(self._creation, error)
            died = runner.ray.exceptions.ActorDiedError(runner.to_task_error(f"{self.name}.__init__", error))
            died.gonogo_cause = getattr(error, "gonogo_cause", error)
            self.dead = died
            waiting, self._calls = self._calls, []
            for call in waiting:
                runner.fail(call, died)
            return False
        runner.finish(self._creation, None)
        return True

    def _run_calls(self) -> None:
        self.thread = threading.get_ident()
        asyncio.set_event_loop(asyncio.new_event_loop())
        if not self._create_instance():
            return
        while self.dead is None:
            if not self._calls:
                self._idle = _thread.allocate_lock()
                self._idle.acquire()
                self.runner.cluster.turns.wait(self._idle)
                continue
            call = self._calls.pop(0)
            if self._several > 1:  # a threaded actor runs several calls concurrently
                assert self.process is not None
                self.runner.run_as_process(self.process, self.name, functools.partial(self._run_call, call))
            else:
                self._run_call(call)

    def _bound_method(self, name: str) -> Callable[..., Any]:
        if name == "__ray_ready__":
            return lambda: True
        if name == "__ray_call__":
            return lambda function, *args, **kwargs: function(self._instance, *args, **kwargs)
        if name == "__ray_terminate__":
            return self.kill
        found: Callable[..., Any] = getattr(self._instance, name)
        return found

    def _run_call(self, call: RemoteCall) -> None:
        runner = self.runner
        own = threading.get_ident()
        self.running[own] = call
        try:
            runner.wait_for_arguments(call)
            args, kwargs = runner.cluster.resolve_arguments(call.sent)
            runner.finish(call, self._bound_method(call.name)(*args, **kwargs))
        except RehearsalEnded:
            raise
        except BaseException as error:
            runner.fail(call, error)
        finally:
            del self.running[own]

    def _run_async_calls(self) -> None:
        self.thread = threading.get_ident()
        loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
        if not self._create_instance():
            return
        self.loop = loop
        waiting, self._calls = self._calls, []
        for call in waiting:
            loop.call_soon(self._begin_call, call)
        loop.run_forever()

    def _begin_call(self, call: RemoteCall) -> None:
        assert self.loop is not None
        task = self.loop.create_task(self._call_async(call))
        _running.add(task)
        task.add_done_callback(_running.discard)

    async def _call_async(self, call: RemoteCall) -> None:
        runner = self.runner
        try:
            for one in call.sent.kept:
                if getattr(one, "answer", None) is not None and not one.answer.done:
                    await one
            args, kwargs = runner.cluster.resolve_arguments(call.sent)
            value = self._bound_method(call.name)(*args, **kwargs)
            runner.finish(call, await value if inspect.isawaitable(value) else value)
        except RehearsalEnded:
            raise
        except BaseException as error:
            runner.fail(call, error)


_running: set[Any] = set()
"""References to running asyncio tasks, which would otherwise be garbage collected."""


def _member_functions(kind: type) -> list[Any]:
    return [member for _, member in inspect.getmembers(kind, inspect.isfunction)]
