"""The compiled code of all hazards in one file: hundreds of small modules take longer to open than to run.

The file lies beside Python's own compiled files, is written like them and trusted like them: where a source file has
another size or time than it had, everything is read from the sources again, and the file is made anew.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import marshal
import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from gonogo.report.atomic import write_atomically

Stamp = tuple[tuple[str, str, int, int], ...]
"""Of each module: name, source file, time of change in nanoseconds, size in bytes."""


def modules_of(package: ModuleType) -> list[ModuleType]:
    """Every module of the package, imported: from one file, if that is up to date; else it is written afterwards.

    Nothing is written where Python was told to write no compiled files, or may not.
    """
    stamp = _stamp(package)
    path = _path(package)
    codes = _read(path, stamp)
    if codes is None:
        modules = [importlib.import_module(name) for name, _, _, _ in stamp]
        if not sys.dont_write_bytecode:
            with contextlib.suppress(OSError):
                path.parent.mkdir(exist_ok=True)
                write(package)
        return modules
    finder = _Finder(codes, {name: source for name, source, _, _ in stamp})
    sys.meta_path.insert(0, finder)
    try:
        return [finder.imported(name) for name, _, _, _ in stamp]
    finally:
        sys.meta_path.remove(finder)


def write(package: ModuleType) -> None:
    """Write the one file for the package. Raises OSError where that can't be."""
    stamp = _stamp(package)
    codes = {}
    for name, _, _, _ in stamp:
        spec = importlib.util.find_spec(name)
        assert spec is not None
        codes[name] = spec.loader.get_code(name)  # type: ignore[union-attr]
    write_atomically(_path(package), marshal.dumps((stamp, codes)))


def _path(package: ModuleType) -> Path:
    assert package.__file__ is not None
    beside = Path(importlib.util.cache_from_source(package.__file__))
    return beside.with_name(beside.name.replace("__init__", "all_of_it", 1).removesuffix(".pyc") + ".marshal")


def _stamp(package: ModuleType) -> Stamp:
    found: list[tuple[str, str, int, int]] = []

    def look(folder: str, prefix: str) -> None:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.endswith(".py") and entry.name != "__init__.py":
                    status = entry.stat()
                    found.append((f"{prefix}{entry.name[:-3]}", entry.path, status.st_mtime_ns, status.st_size))
                elif not entry.name.startswith((".", "__")) and entry.is_dir():
                    look(entry.path, f"{prefix}{entry.name}.")

    for folder in package.__path__:
        look(folder, f"{package.__name__}.")
    return tuple(sorted(found))


def _read(path: Path, stamp: Stamp) -> dict[str, CodeType] | None:
    try:
        written = marshal.loads(path.read_bytes())
        return written[1] if written[0] == stamp else None
    except (OSError, EOFError, ValueError, TypeError, IndexError, KeyError):
        return None


class _Finder:
    """Finds modules by name in what was read, for the import system."""

    def __init__(self, codes: dict[str, CodeType], sources: dict[str, str]) -> None:
        self._codes = codes
        self._sources = sources

    def imported(self, name: str) -> ModuleType:
        """The module: run here, without the import system's locks and searches, unless it has been imported."""
        module = sys.modules.get(name)
        if module is not None:
            return module
        parent, _, last = name.rpartition(".")
        package = sys.modules.get(parent) or importlib.import_module(parent)
        spec = self.find_spec(name)
        assert spec is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            self.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
        setattr(package, last, module)
        return module

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: Any = None) -> ModuleSpec | None:
        """The import system asks for a module."""
        if name not in self._codes:
            return None
        spec = ModuleSpec(name, self, origin=self._sources[name])  # type: ignore[arg-type]
        spec.has_location = True
        return spec

    def create_module(self, spec: ModuleSpec) -> None:
        """A module as any other."""

    def exec_module(self, module: ModuleType) -> None:
        """Run the module's code."""
        exec(self._codes[module.__name__], vars(module))


if __name__ == "__main__":  # `make setup`, so that the first start is as quick as any
    write(importlib.import_module("gonogo.hazards"))
