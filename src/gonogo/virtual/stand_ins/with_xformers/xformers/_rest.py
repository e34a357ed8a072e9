"""The names of the real package that are not written out: they can be imported, and say so when they are used."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from gonogo.finding import translated
from gonogo.virtual.unsupported import UnsupportedOperator

_WHY = translated(
    "xFormers is not installed here, and gonogo's stand-in for it has only this name, without an implementation"
)


def missing_name_getattr(module: str, names: Iterable[str]) -> Callable[[str], Any]:
    """The ``__getattr__`` of a module of which the stand-in implements only some names."""
    known = frozenset(names)

    def __getattr__(name: str) -> Any:
        if name not in known:
            raise AttributeError(f"module {module!r} has no attribute {name!r}", name=name)
        return _UnimplementedName(name, (), {"__module__": module})

    return __getattr__


class _UnimplementedName(type):
    """A class or function of xFormers that exists by name only."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        raise UnsupportedOperator(f"{cls.__module__}.{cls.__name__}", _WHY)
