"""All names of the real package that are not written out here: they can be imported, and say so when they are used.

Most programs import more than they run. ``names.json`` lists the modules of the real package and what each defines.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from gonogo.finding import translated
from gonogo.virtual.unsupported import UnsupportedOperator

NAMES: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("names.json").read_text(encoding="utf-8"))[
    "modules"
]
_WHY = translated(
    "flash-attn is not installed here, and gonogo's stand-in for it has only this name, without an implementation"
)


def lacking(module: str) -> Callable[[str], Any]:
    """The ``__getattr__`` of a module that is written out in part, or not at all."""
    names = NAMES[module]

    def __getattr__(name: str) -> Any:
        if name in names.get("classes", ()):
            return _put(module, name, _Unwritten(name, (), {"__module__": module}))
        if name in names.get("functions", ()) or name in names.get("values", ()):
            return _put(module, name, _unwritten(f"{module}.{name}"))
        if name in names.get("imported", {}):
            return _put(module, name, _imported(module, name, names["imported"][name]))
        raise AttributeError(f"module '{module}' has no attribute '{name}'", name=name, obj=sys.modules[module])

    return __getattr__


def _put(module: str, name: str, value: Any) -> Any:
    setattr(sys.modules[module], name, value)
    return value


def _imported(module: str, name: str, where: str) -> Any:
    """What the real module imports under that name, where it is installed."""
    source, _, attribute = where.partition(":")
    try:
        found = importlib.import_module(source)
        return getattr(found, attribute) if attribute else found
    except (ImportError, AttributeError):
        return _unwritten(f"{module}.{name}")


def _unwritten(name: str) -> Callable[..., Any]:
    def unwritten(*args: Any, **kwargs: Any) -> Any:
        raise UnsupportedOperator(name, _WHY)

    unwritten.__name__ = name.rpartition(".")[2]
    return unwritten


class _Unwritten(type):
    """A class whose name is all there is: made, or asked for a method of its own, it says so."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        raise UnsupportedOperator(f"{cls.__module__}.{cls.__name__}", _WHY)

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _unwritten(f"{cls.__module__}.{cls.__name__}.{name}")


class _Modules:
    """Finds the modules of the real package that have no file here."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """A module of names alone, or None."""
        if name not in NAMES:
            return None
        spec = ModuleSpec(name, _Modules, is_package=any(other.startswith(f"{name}.") for other in NAMES))  # type: ignore[arg-type]
        spec.origin = __file__
        spec.has_location = True
        return spec

    @staticmethod
    def create_module(spec: ModuleSpec) -> None:
        """As any module."""

    @staticmethod
    def exec_module(module: ModuleType) -> None:
        """Have it answer for its names."""
        module.__getattr__ = lacking(module.__name__)  # type: ignore[method-assign]


sys.meta_path.append(_Modules)
