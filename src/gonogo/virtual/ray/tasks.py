"""Remote functions and actors: created by ``remote``, and run in the turn of their own process."""

from __future__ import annotations

import asyncio
import importlib
import threading
import traceback
from collections.abc import Callable
from typing import Any

from gonogo.finding import translated
from gonogo.virtual.failure import find_in_chain
from gonogo.virtual.ray.cluster import Cluster, PendingPlacement, RayPlacement
from gonogo.virtual.ray.object_transfer import PickledObject
from gonogo.virtual.ray.process import RayProcess
from gonogo.virtual.ray.references import wait_until_available
from gonogo.virtual.ray.turns import RehearsalEnded
from gonogo.virtual.unsupported import UnsupportedOperator


def required_resources(options: dict[str, Any], *, cpus: float) -> dict[str, float]:
    """The resources that Ray reserves for an actor or task; ``cpus`` is the default."""
    given = options.get("num_cpus")
    wanted = {"CPU": cpus if given is None else float(given), "GPU": float(options.get("num_gpus") or 0)}
    wanted.update({name: float(count) for name, count in (options.get("resources") or {}).items()})
    return {name: count for name, count in wanted.items() if count}


def runtime_env_variables(options: dict[str, Any]) -> dict[str, str]:
    """The environment variables set by ``runtime_env``."""
    environment = options.get("runtime_env") or {}
    return {str(name): str(value) for name, value in (environment.get("env_vars") or {}).items()}


class RemoteCall:
    """A pending call: its arguments, and the references for its results."""

    def __init__(self, name: str, packed_arguments: PickledObject, references: list[Any]) -> None:
        self.name = name
        self.sent = packed_arguments
        self.references = references


class CallRunner:
    """Runs calls, and delivers their results."""

    def __init__(self, cluster: Cluster, ray: Any, reference_class: type) -> None:
        self.cluster = cluster
        self.ray = ray
        self.reference = reference_class

    def create_call(self, name: str, args: Any, kwargs: Any, options: dict[str, Any]) -> RemoteCall:
        """Create a call. Arguments are pickled at once, as in Ray."""
        several = options.get("num_returns")
        if several in ("streaming", "dynamic"):
            raise UnsupportedOperator(
                f"ray: num_returns={several!r}", translated("gonogo's stand-in for Ray does not support generators")
            )
        try:
            sent = self.cluster.pack((tuple(args or ()), dict(kwargs or {})))
        except (TypeError, AttributeError, ValueError) as error:
            raise TypeError(f"Could not serialize an argument of {name}: {error}") from error
        count = 1 if several is None else int(several)
        return RemoteCall(name, sent, [self.reference() for _ in range(count)])

    def references(self, call: RemoteCall) -> Any:
        """What ``remote`` returns."""
        if len(call.references) == 1:
            return call.references[0]
        return list(call.references) or None

    def finish(self, call: RemoteCall, value: Any) -> None:
        """Deliver the results of a call that has returned."""
        several = [value] if len(call.references) == 1 else list(value or ())
        try:
            packed = [self.cluster.pack(one) for one in several]
        except (TypeError, AttributeError) as error:
            self.fail(call, error)
            return
        for reference, one in zip(call.references, packed, strict=True):
            reference.answer.set(one)

    def fail(self, call: RemoteCall, error: BaseException) -> None:
        """Deliver the exception of a call; gonogo's own exceptions end the rehearsal."""
        if not isinstance(error, Exception) or find_in_chain(error, UnsupportedOperator) is not None:
            self.cluster.turns.end(error)
        wrapped = self.to_ray_error(call.name, error)
        for reference in call.references:
            reference.answer.set(None, wrapped)

    def to_ray_error(self, name: str, error: BaseException) -> BaseException:
        """Ray's exception for one raised by a task."""
        exceptions = self.ray.exceptions
        raised: Any = error
        if isinstance(raised, exceptions.RayError) and not isinstance(raised, exceptions.RayTaskError):
            return error
        wrapped = self.to_task_error(name, error)
        raised = wrapped.as_instanceof_cause() if isinstance(error, Exception) else wrapped
        raised.gonogo_cause = getattr(error, "gonogo_cause", error)
        return raised  # type: ignore[no-any-return]

    def to_task_error(self, name: str, error: BaseException) -> Any:
        """The same as a plain RayTaskError, before ``as_instanceof_cause``."""
        text = "".join(traceback.format_exception(error))
        wrapped = self.ray.exceptions.RayTaskError(name, text, error, proctitle=f"ray::{name}", ip="127.0.0.1")
        wrapped.cause = error  # also if it can't be pickled
        return wrapped

    def run_as_process(self, process: RayProcess, name: str, run: Callable[[], None]) -> None:
        """Run a function in the turn of a process; an unexpected exception ends the rehearsal, so that nobody keeps
        waiting."""

        def run_in_turn() -> None:
            turns = self.cluster.turns
            turns.join(process)
            try:
                run()
            except RehearsalEnded:
                pass
            except BaseException as error:
                turns.end(error)
            finally:
                turns.leave()

        threading.Thread(target=run_in_turn, daemon=True, name=f"ray::{name}").start()

    def wait_for_arguments(self, call: RemoteCall) -> None:
        """Wait until the references among the call's arguments are available."""
        for one in call.sent.kept:
            answer = getattr(one, "answer", None)
            if answer is not None:
                wait_until_available(answer, self.cluster.turns)

    def start_task(self, function: Any, name: str, args: Any, kwargs: Any, options: dict[str, Any]) -> Any:
        """``function.remote(…)``."""
        call = self.create_call(name, args, kwargs, options)

        def start_at(place: RayPlacement) -> None:
            process = self.cluster.create_process(name, place, runtime_env_variables(options), hide_other_gpus=True)

            def run_task() -> None:
                try:
                    self.wait_for_arguments(call)
                    given, named = self.cluster.resolve_arguments(call.sent)
                    asyncio.set_event_loop(asyncio.new_event_loop())
                    self.finish(call, function(*given, **named))
                except RehearsalEnded:
                    raise
                except BaseException as error:
                    self.fail(call, error)
                finally:
                    place.give_back()

            self.run_as_process(process, name, run_task)

        def mark_never_ready(reason: str) -> None:
            for reference in call.references:
                reference.answer.never = reason

        wanted = required_resources(options, cpus=1.0)
        self.cluster.place_or_queue(
            PendingPlacement(name, wanted, scheduling_strategy(options), start_at, mark_never_ready)
        )
        return self.references(call)


def scheduling_strategy(options: dict[str, Any]) -> Any:
    """The scheduling strategy, which older programs pass in other options."""
    strategy = options.get("scheduling_strategy")
    group = options.get("placement_group")
    if strategy is None and group not in (None, "default"):
        strategies: Any = importlib.import_module("ray.util.scheduling_strategies")
        index = options.get("placement_group_bundle_index", -1)
        return strategies.PlacementGroupSchedulingStrategy(placement_group=group, placement_group_bundle_index=index)
    return strategy
