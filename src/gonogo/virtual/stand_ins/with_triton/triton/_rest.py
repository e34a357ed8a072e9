"""Triton's names that are not written out here: they can be imported, and say so when they are used.

Kernels are never run, so most of what a program imports is only named in them. ``names.json`` lists the modules of the
real package and what each defines.
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

_TABLE = json.loads(Path(__file__).with_name("names.json").read_text(encoding="utf-8"))
VERSION: str = _TABLE["version"]
NAMES: dict[str, dict[str, Any]] = _TABLE["modules"]
_WHY = translated(
    "Triton is not installed here, and gonogo's stand-in for it has only this name, without an implementation"
)
_ERROR_MODULES = ("triton.errors", "triton.compiler.errors", "triton.runtime.errors")


def lacking(module: str) -> Callable[[str], Any]:
    """The ``__getattr__`` of a module that is written out in part, or not at all."""
    names = NAMES[module]

    def __getattr__(name: str) -> Any:
        if name in names.get("classes", ()):
            base = (Exception,) if module in _ERROR_MODULES else ()
            made: Any = type(name, base, {"__module__": module}) if base else _Unwritten(name, (), _of(module))
        elif name in names.get("functions", ()):
            made = _unwritten(f"{module}.{name}")
        elif name in names.get("values", ()):
            made = _Value(f"{module}.{name}")
        elif name in names.get("imported", {}):
            source, _, attribute = names["imported"][name].partition(":")
            made = importlib.import_module(source)
            made = getattr(made, attribute) if attribute else made
        else:
            raise AttributeError(f"module '{module}' has no attribute '{name}'", name=name, obj=sys.modules[module])
        setattr(sys.modules[module], name, made)
        return made

    return __getattr__


def _of(module: str) -> dict[str, Any]:
    return {"__module__": module}


def _unwritten(name: str) -> Callable[..., Any]:
    def unwritten(*args: Any, **kwargs: Any) -> Any:
        raise UnsupportedOperator(name, _WHY)

    unwritten.__name__ = name.rpartition(".")[2]
    return unwritten


class _Value:
    """A dtype or a setting: named in kernels, kept in tables, and passed to launches."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return self._name


class _Unwritten(type):
    """A class whose name is all there is: asked for a method of its own, it says so; its objects only exist.

    Kernels' signatures and constants make some, as ``tl.constexpr(2)``.
    """

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if cls.__name__ == "constexpr":
            constant = super().__call__()
            constant.value = args[0] if args else kwargs.get("value")
            return constant
        if cls.__module__.startswith("triton.language"):
            return _Value(f"{cls.__module__}.{cls.__name__}")
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


def find_the_rest() -> None:
    """Have the modules of names alone found, once."""
    if _Modules not in sys.meta_path:
        sys.meta_path.append(_Modules)
