"""``import vllm`` on a machine without GPUs: a package with the names that trainers use, and a matching version.

Each name is listed with the releases that have it. Importing any other name raises an error that leads to
CANNOT-TELL, and that is also an ImportError, which programs may catch.
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
"""The newest release against which this was checked."""
_ENGINE_FRAMEWORKS = ("verl", "openrlhf", "trl")
"""Packages with an extra ``vllm`` that states which release they support."""
_BUNDLES_ENGINE = "ms-swift"
"""A package with its own code for vLLM, whatever version the TRL installed beside it requires."""
Names = Mapping[str, Mapping[str, tuple[Any, tuple[int, int], tuple[int, int]]]]
"""By module and name: the object, the first release that has it, and the first that no longer has it."""
_WITHOUT = translated("gonogo's stand-in for vLLM does not have this name")
ALWAYS, STILL = (0, 0), (1 << 16, 0)


def stand_in_version(program: str = "") -> tuple[str, bool]:
    """The installed version, or else the newest supported by an installed framework; and whether it is installed.

    If several frameworks are installed, the one that is run decides, or else the last in the list.
    """
    try:
        return metadata.version("vllm"), True
    except metadata.PackageNotFoundError:
        pass
    run = [program] if program in _ENGINE_FRAMEWORKS else []
    for framework in () if _is_installed(_BUNDLES_ENGINE) and not run else (*run, *reversed(_ENGINE_FRAMEWORKS)):
        try:
            requested = metadata.requires(framework) or []
        except metadata.PackageNotFoundError:
            continue
        for requirement in requested:
            newest = re.match(r"vllm\b[^;]*?(<=|==|<)\s*([\d.]+)", requirement)
            if newest is not None:
                return (_previous_minor_release(newest[2]) if newest[1] == "<" else newest[2]), False
    return NEWEST, False


def _is_installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def _previous_minor_release(release: str) -> str:
    """The last minor release before another one: 0.12.0 for 0.13.0."""
    major, minor, *_ = [int(part) for part in f"{release}.0".split(".") if part]
    return f"{major}.{minor - 1}.0" if minor else NEWEST


class VllmPackage:
    """Finds and creates the modules, and provides the package's metadata."""

    def __init__(self, version: str, names: Names, unsupported_error: Callable[[str, Text], BaseException]) -> None:
        self._version = version
        self._names = names
        self._refuse = unsupported_error
        parts = [name.split(".") for name in names]
        self._modules = {".".join(one[:count]) for one in parts for count in range(1, len(one) + 1)}

    def install(self, patches: Patches) -> None:
        """Install the finder in front of others that might find a real vllm."""
        sys.meta_path.insert(0, self)
        patches.on_undo(lambda: sys.meta_path.remove(self))

        def forget_modules() -> None:
            for name in [name for name in sys.modules if name == "vllm" or name.startswith("vllm.")]:
                del sys.modules[name]

        patches.on_undo(forget_modules)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Find a module of the stand-in. Raises an error for other modules of vLLM."""
        if name.startswith("vllm.") and name not in self._modules:
            raise self._refuse(name, _WITHOUT)
        return ModuleSpec(name, self, is_package=True) if name in self._modules else None  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Create a module, whose ``__getattr__`` distinguishes names of other releases from unknown ones."""
        numbers = tuple(int(part) for part in self._version.split(".")[:2])
        module = ModuleType(spec.name, __doc__)
        known = self._names.get(spec.name, {})

        def raise_missing_name(name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(name)
            if f"{spec.name}.{name}" in self._modules:  # ``from package import module``
                return importlib.import_module(f"{spec.name}.{name}")
            if name in known:  # a name of an older or newer release
                raise AttributeError(f"module {spec.name!r} has no attribute {name!r}")
            raise self._refuse(f"{spec.name}.{name}", _WITHOUT)

        vars(module).update({name: value for name, (value, first, gone) in known.items() if first <= numbers < gone})
        vars(module)["__getattr__"] = raise_missing_name
        if spec.name == "vllm":
            vars(module)["__version__"] = self._version
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing: ``create_module`` has filled the module."""

    def find_distributions(self, context: Any = None) -> Iterator[metadata.Distribution]:
        """Yield the stand-in's distribution for importlib.metadata."""
        name = getattr(context, "name", None)
        if name is None or name == "vllm":
            yield _Distribution(self._version)

    def invalidate_caches(self) -> None:
        """Do nothing: there are no caches."""


class _Distribution(metadata.Distribution):
    """The package's metadata."""

    def __init__(self, version: str) -> None:
        self._version = version

    def read_text(self, filename: str) -> str | None:
        """The text of METADATA and similar files; None for others."""
        return {
            "METADATA": f"Metadata-Version: 2.1\nName: vllm\nVersion: {self._version}\n",
            "top_level.txt": "vllm\n",
        }.get(filename)

    def locate_file(self, path: Any) -> Any:
        """Raises FileNotFoundError: the stand-in has no files."""
        raise FileNotFoundError(path)
