"""Actor handles: a subclass of Ray's own class, whose methods run in the rehearsal."""

from __future__ import annotations

from typing import Any

from gonogo.virtual.ray.actors import Actor
from gonogo.virtual.ray.tasks import CallRunner

_RAY_METHODS = ("__ray_ready__", "__ray_call__", "__ray_terminate__")


class Method:
    """A method of an actor handle, with ``remote`` and ``options``."""

    def __init__(self, runner: CallRunner, actor: Actor, name: str, options: dict[str, Any]) -> None:
        self._runner = runner
        self._actor = actor
        self._name = name
        self._options = options

    def remote(self, *args: Any, **kwargs: Any) -> Any:
        """Call the method; returns its reference, or several."""
        return self._remote(args, kwargs)

    def _remote(self, args: Any = None, kwargs: Any = None, **options: Any) -> Any:
        several = {**self._options, **{name: value for name, value in options.items() if value is not None}}
        call = self._runner.create_call(self._name, args, kwargs, several)
        for reference in call.references:
            reference.answer.asked = (self._actor, call)
        self._actor.submit(call)
        return self._runner.references(call)

    def options(self, **options: Any) -> Method:
        """The method with other options."""
        return Method(self._runner, self._actor, self._name, {**self._options, **options})

    def __call__(self, *_: Any, **__: Any) -> Any:
        """Raise the same error as Ray."""
        name = f"{self._actor.name}.{self._name}"
        raise TypeError(
            "Actor methods cannot be called directly. Instead "
            f"of running 'object.{self._name}()', try 'object.{self._name}.remote()'. ({name})"
        )


def handle_class(ray: Any) -> type:
    """The handle class, derived from the installed Ray's."""

    class Handle(ray.actor.ActorHandle):  # type: ignore[misc]
        """An actor handle that calls the rehearsal's actor."""

        def __init__(self, runner: CallRunner, actor: Actor) -> None:
            self.__dict__.update(_runner=runner, _actor=actor, _ray_actor_id=ray.ActorID(actor.id))

        def __del__(self) -> None:
            """Override Ray's, which would notify a daemon."""

        @property
        def _actor_id(self) -> Any:
            return self._ray_actor_id

        def __getattr__(self, name: str) -> Any:
            actor = vars(self)["_actor"]
            found = getattr(actor.kind, name, None)
            if name not in _RAY_METHODS and (name.startswith("__") or not callable(found)):
                raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
            returns = getattr(found, "__ray_num_returns__", None)
            return Method(self._runner, actor, name, {} if returns is None else {"num_returns": returns})

        __ray_ready__ = property(lambda self: self.__getattr__("__ray_ready__"))
        __ray_call__ = property(lambda self: self.__getattr__("__ray_call__"))
        __ray_terminate__ = property(lambda self: self.__getattr__("__ray_terminate__"))

        def __dir__(self) -> list[str]:
            return [name for name in dir(vars(self)["_actor"].kind) if not name.startswith("__")]

        def __repr__(self) -> str:
            actor = vars(self)["_actor"]
            return f"Actor({actor.kind.__name__}, {self._ray_actor_id.hex()})"

        def __hash__(self) -> int:
            return hash(self._ray_actor_id)

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Handle) and self._ray_actor_id == other._ray_actor_id

        def __reduce__(self) -> Any:
            raise TypeError("a handle is handed over as it is")

    return Handle
