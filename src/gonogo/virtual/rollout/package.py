"""``import vllm`` where no GPU is: a package with the names that trainers use, and the version that they would have.

Each name has the releases that have it; of a name that is not here the import
fails with an error that makes CANNOT-TELL of it, and that a program may catch as the ImportError that it is too.
"""

from __future__ import annotations

import importlib
import importlib.metadata as metadata
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from gonogo.finding import Text, translated
from gonogo.virtual.patching.patches import Patches

NEWEST = "0.31.0"
"""The newest release that this was checked against."""
_FRAMEWORKS = ("verl", "openrlhf", "trl")
"""Packages whose extra ``vllm`` says which release they drive."""
_BUNDLES_ENGINE = "ms-swift"
"""A package that drives vLLM with code of its own, whatever the TRL beside it asks for."""
Names = Mapping[str, Mapping[str, tuple[Any, tuple[int, int], tuple[int, int]]]]
"""By module and name: the object, the first release that has it, and the first that has it no more."""
_WITHOUT = translated("gonogo's stand-in for vLLM does not have it")
ALWAYS, STILL = (0, 0), (1 << 16, 0)


def stand_in_version(program: str = "") -> tuple[str, bool]:
    """The version installed, else the newest that an installed framework drives; and whether it is installed.

    Of several frameworks it is the one that is run, else the last of the list.
    """
    try:
        return metadata.version("vllm"), True
    except metadata.PackageNotFoundError:
        pass
    run = [program] if program in _FRAMEWORKS else []
    for framework in () if _is_there(_BUNDLES_ENGINE) and not run else (*run, *reversed(_FRAMEWORKS)):
        try:
            asked = metadata.requires(framework) or []
        except metadata.PackageNotFoundError:
            continue
        for requirement in asked:
            newest = re.match(r"vllm\b[^;]*?(<=|==|<)\s*([\d.]+)", requirement)
            if newest is not None:
                return (_below(newest[2]) if newest[1] == "<" else newest[2]), False
    return NEWEST, False


def _is_there(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def _below(release: str) -> str:
    """The last minor release before one: 0.12.0 before 0.13.0."""
    major, minor, *_ = [int(part) for part in f"{release}.0".split(".") if part]
    return f"{major}.{minor - 1}.0" if minor else NEWEST


class VllmPackage:
    """Finds and makes the modules, and says that the package is installed."""

    def __init__(self, version: str, names: Names, unsupported_error: Callable[[str, Text], BaseException]) -> None:
        self._version = version
        self._names = names
        self._refuse = unsupported_error
        parts = [name.split(".") for name in names]
        self._modules = {".".join(one[:count]) for one in parts for count in range(1, len(one) + 1)}

    def install(self, patches: Patches) -> None:
        """Put it in the place of what ``import vllm`` would find."""
        sys.meta_path.insert(0, self)
        patches.on_undo(lambda: sys.meta_path.remove(self))

        def forget() -> None:
            for name in [name for name in sys.modules if name == "vllm" or name.startswith("vllm.")]:
                del sys.modules[name]

        patches.on_undo(forget)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """The import system's question. Raises for a module of vLLM that is not stood in for."""
        if name.startswith("vllm.") and name not in self._modules:
            raise self._refuse(name, _WITHOUT)
        return ModuleSpec(name, self, is_package=True) if name in self._modules else None  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """An empty one, whose missing names are told from those that no release has."""
        numbers = tuple(int(part) for part in self._version.split(".")[:2])
        module = ModuleType(spec.name, __doc__)
        known = self._names.get(spec.name, {})

        def missing(name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(name)
            if f"{spec.name}.{name}" in self._modules:  # ``from package import module``
                return importlib.import_module(f"{spec.name}.{name}")
            if name in known:  # a release that is older or newer than the name
                raise AttributeError(f"module {spec.name!r} has no attribute {name!r}")
            raise self._refuse(f"{spec.name}.{name}", _WITHOUT)

        vars(module).update({name: value for name, (value, first, gone) in known.items() if first <= numbers < gone})
        vars(module)["__getattr__"] = missing
        if spec.name == "vllm":
            vars(module)["__version__"] = self._version
        return module

    def exec_module(self, module: ModuleType) -> None:
        """All is in it."""

    def find_distributions(self, context: Any = None) -> Iterator[metadata.Distribution]:
        """importlib.metadata's question."""
        name = getattr(context, "name", None)
        if name is None or name == "vllm":
            yield _Distribution(self._version)

    def invalidate_caches(self) -> None:
        """There are none."""


class _Distribution(metadata.Distribution):
    """The package's metadata."""

    def __init__(self, version: str) -> None:
        self._version = version

    def read_text(self, filename: str) -> str | None:
        """The two files that are asked for."""
        return {
            "METADATA": f"Metadata-Version: 2.1\nName: vllm\nVersion: {self._version}\n",
            "top_level.txt": "vllm\n",
        }.get(filename)

    def locate_file(self, path: Any) -> Any:
        """There are no files."""
        raise FileNotFoundError(path)
