"""Packages that are compiled against one torch: which torch each of their releases goes with."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import msgspec

from gonogo.evidence.environment.version_range import versions_in
from gonogo.evidence.tables import TABLES

if TYPE_CHECKING:
    from gonogo.evidence.environment.environment import Environment


class BuiltFor(msgspec.Struct, frozen=True):
    """Releases of a package, and the torch that goes with them."""

    package: str
    versions: str
    torch: str
    source: str


class _Table(msgspec.Struct, frozen=True):
    built_for: tuple[BuiltFor, ...]


@cache
def _rows() -> tuple[BuiltFor, ...]:
    data = (TABLES / "compatibility" / "built_for.json").read_bytes()
    return msgspec.json.decode(data, type=_Table).built_for


def torch_of(package: str, environment: Environment) -> BuiltFor | None:
    """The torch that the environment's release of a package goes with; None where that isn't known."""
    version = environment.version(package)
    if version is None:
        return None
    rows = (row for row in _rows() if row.package == package)
    return next((row for row in rows if (named := versions_in(row.versions)) and named.has(version)), None)


def versions_for_torch(package: str, environment: Environment) -> str | None:
    """The specifier of the package's newest releases for the environment's torch."""
    version = environment.version("torch")
    if version is None:
        return None
    rows = [row for row in _rows() if row.package == package]
    fitting = [row for row in rows if (named := versions_in(row.torch)) and named.has(version)]
    return fitting[-1].versions if fitting else None
