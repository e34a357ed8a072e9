"""Names of a newer Python's standard library, for projects that require a newer Python than this one.

Additions to ``typing`` are in typing_extensions, which torch requires; a few others are implemented here. Only the
project's own code gets them: packages installed here check whether a name exists, and have a fallback. Syntax
of a newer Python is not supported.
"""

from __future__ import annotations

import contextlib
import enum
import importlib
import itertools
import os
import platform
import sys
import sysconfig
from collections.abc import Callable, Iterator
from datetime import timezone
from typing import Any

import typing_extensions
from packaging.specifiers import InvalidSpecifier, SpecifierSet

from gonogo.finding import Text, translated
from gonogo.virtual.patching.patches import Patches

_ASSUMPTION = translated(
    "the run uses Python {wanted}, as the project requires: Python {have} lacks {name}, so "
    "gonogo added a replacement here"
)
_TYPING_NAMES_BY_RELEASE = {
    11: {
        *("LiteralString", "Never", "NotRequired", "Required", "Self", "TypeVarTuple", "Unpack", "assert_never"),
        *("assert_type", "clear_overloads", "dataclass_transform", "get_overloads", "reveal_type"),
    },
    12: {"TypeAliasType", "override"},
    13: {"NoDefault", "ReadOnly", "TypeIs", "get_protocol_members", "is_protocol"},
}
"""By the minor version of Python 3 that added them."""


class _StrEnum(str, enum.Enum):
    __str__ = str.__str__
    __format__ = str.__format__  # type: ignore[assignment]

    @staticmethod
    def _generate_next_value_(name: str, start: int, count: int, last_values: list[Any]) -> str:
        return name.lower()


def _batched(iterable: Any, n: int, *, strict: bool = False) -> Iterator[tuple[Any, ...]]:
    if n < 1:
        raise ValueError("n must be at least one")
    iterator = iter(iterable)
    while batch := tuple(itertools.islice(iterator, n)):
        if strict and len(batch) != n:
            raise ValueError("batched(): incomplete batch")
        yield batch


_OTHER_NAMES: tuple[tuple[int, str, str, Any], ...] = (
    (11, "datetime", "UTC", timezone.utc),
    (11, "enum", "StrEnum", _StrEnum),
    (12, "itertools", "batched", _batched),
    (12, "collections.abc", "Buffer", typing_extensions.Buffer),
    (13, "warnings", "deprecated", typing_extensions.deprecated),
)
"""The minor version that added a name, its module, the name, and its replacement."""


def install(required: str, assume: Callable[[Text], object]) -> Callable[[], None]:
    """Add what the required Python has and this one lacks; each name used becomes an assumption.

    ``required``: the project's ``requires-python`` specifier, or empty.
    """
    patches = Patches()
    release = _required_release(required)
    if release is None:
        return patches.undo
    names: dict[str, dict[str, Any]] = {}
    for since, added in _TYPING_NAMES_BY_RELEASE.items():
        if since <= release:
            twins = {name: getattr(typing_extensions, name) for name in added if hasattr(typing_extensions, name)}
            names.setdefault("typing", {}).update(twins)
    for since, module, name, value in _OTHER_NAMES:
        if since <= release:
            names.setdefault(module, {})[name] = value
    for module, values in names.items():
        target = importlib.import_module(module)
        lacking = {name: value for name, value in values.items() if not hasattr(target, name)}
        if lacking:
            patches.set(target, "__getattr__", _module_getattr(target, lacking, required, assume))
    return patches.undo


def _required_release(required: str) -> int | None:
    """The oldest minor version of Python 3 that the project allows, if it is newer than this one."""
    try:
        allowed = SpecifierSet(required)
    except InvalidSpecifier:
        return None
    if not required or allowed.contains(platform.python_version(), prereleases=True):
        return None
    here = sys.version_info.minor
    return next((minor for minor in range(here + 1, here + 10) if allowed.contains(f"3.{minor}.99")), None)


def _package_folders() -> tuple[str, ...]:
    """Folders of the standard library and of installed packages, which were chosen for this Python."""
    found = [sysconfig.get_path("stdlib")]
    for folder in sys.path:
        with contextlib.suppress(OSError):
            if any(name.endswith(".dist-info") for name in os.listdir(folder or ".")):
                found.append(folder)
    return tuple(os.path.join(os.path.abspath(folder), "") for folder in found)


def _module_getattr(
    module: Any, lacking: dict[str, Any], required: str, assume: Callable[[Text], object]
) -> Callable[[str], Any]:
    before, packages = vars(module).get("__getattr__"), _package_folders()

    def __getattr__(name: str) -> Any:
        if name in lacking and not sys._getframe(1).f_code.co_filename.startswith(packages):
            full = f"{module.__name__}.{name}"
            assume(_ASSUMPTION.format(wanted=required, have=platform.python_version(), name=full))
            return lacking[name]
        if before is not None:
            return before(name)
        raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}", name=name, obj=module)

    return __getattr__
