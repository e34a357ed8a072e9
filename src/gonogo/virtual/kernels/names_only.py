"""The names of a package that its stand-in does not implement: they can be imported, and raise when they are used.

Most programs import more of a package than they run. A ``names.json`` beside the stand-in lists the modules of the real
package and what each defines.
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

from gonogo.finding import Text
from gonogo.virtual.unsupported import UnsupportedOperator


class UnimplementedClass(type):
    """The type of classes that exist by name only: calling one, or a method of it, raises UnsupportedOperator."""

    __reason__: Text

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        """Raise UnsupportedOperator with the class's full name."""
        raise UnsupportedOperator(f"{cls.__module__}.{cls.__name__}", cls.__reason__)

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return unimplemented_function(f"{cls.__module__}.{cls.__name__}.{name}", cls.__reason__)


def unimplemented_function(name: str, reason: Text) -> Callable[..., Any]:
    """A function that raises UnsupportedOperator with its full name."""

    def raise_unsupported(*args: Any, **kwargs: Any) -> Any:
        raise UnsupportedOperator(name, reason)

    raise_unsupported.__name__ = name.rpartition(".")[2]
    return raise_unsupported


class NamesOnlyFinder:
    """Finds the package's modules that have no file in the stand-in, and answers for names that its modules lack."""

    def __init__(self, table: Path, reason: Text) -> None:
        content = json.loads(table.read_text(encoding="utf-8"))
        self.version: str = content.get("version", "")
        self.modules: dict[str, dict[str, Any]] = content["modules"]
        self.reason = reason
        self._origin = str(table)

    def install(self) -> None:
        """Have the modules found, after those that have a file."""
        if self not in sys.meta_path:
            sys.meta_path.append(self)

    def module_getattr(self, module: str) -> Callable[[str], Any]:
        """The ``__getattr__`` of a module that is implemented in part, or not at all."""
        names = self.modules[module]
        imported = tuple(names.get("imported", {}).values())

        def __getattr__(name: str) -> Any:
            if name in names.get("classes", ()):
                found = self.make_class(module, name)
            elif name in names.get("functions", ()):
                found = self.make_function(module, name)
            elif name in names.get("values", ()):
                found = self.make_value(module, name)
            elif name in names.get("imported", {}):
                found = self._real_object(module, name, names["imported"][name])
            elif any(f"{where}:".startswith((f"{module}.{name}:", f"{module}.{name}.")) for where in imported):
                found = importlib.import_module(f"{module}.{name}")  # bound by an import of one of its names
            else:
                raise AttributeError(f"module '{module}' has no attribute '{name}'", name=name, obj=sys.modules[module])
            setattr(sys.modules[module], name, found)
            return found

        return __getattr__

    def make_class(self, module: str, name: str, metaclass: type[UnimplementedClass] = UnimplementedClass) -> Any:
        """The placeholder for a class that the stand-in does not implement."""
        return metaclass(name, (), {"__module__": module, "__reason__": self.reason})

    def make_function(self, module: str, name: str) -> Any:
        """The placeholder for a function that the stand-in does not implement."""
        return unimplemented_function(f"{module}.{name}", self.reason)

    def make_value(self, module: str, name: str) -> Any:
        """The placeholder for any other object that the stand-in does not implement."""
        return self.make_function(module, name)

    def _real_object(self, module: str, name: str, where: str) -> Any:
        """What the real module imports under that name, if it is installed."""
        source, _, attribute = where.partition(":")
        try:
            found = importlib.import_module(source)
            return getattr(found, attribute) if attribute else found
        except (ImportError, AttributeError):
            return self.make_function(module, name)

    # -- importlib's finder and loader ------------------------------------------------------------

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec of a module that exists by name only, or None."""
        if name not in self.modules:
            return None
        is_package = any(other.startswith(f"{name}.") for other in self.modules)
        spec = ModuleSpec(name, self, is_package=is_package)  # type: ignore[arg-type]
        spec.origin = self._origin
        spec.has_location = True
        return spec

    def create_module(self, spec: ModuleSpec) -> None:
        """Have importlib create the module."""

    def exec_module(self, module: ModuleType) -> None:
        """Fill the module: its names are made when they are asked for."""
        module.__getattr__ = self.module_getattr(module.__name__)  # type: ignore[method-assign]
