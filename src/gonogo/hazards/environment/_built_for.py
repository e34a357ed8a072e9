"""Packages that are compiled against one torch, beside another: what they were built for, and a finding of it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING

import msgspec

from gonogo.evidence.environment.version_range import versions_in
from gonogo.evidence.tables import TABLES
from gonogo.finding import Certainty, Finding, Severity, Text
from gonogo.hazards.facts.installed import describe_package, from_file, span_of, together, version_fix

if TYPE_CHECKING:
    from gonogo.evidence.environment.environment import Environment
    from gonogo.evidence.run import Run
    from gonogo.hazards.hazard import Hazard

_BUILT_FOR = Text("built for torch {torch}", "针对 torch {torch} 编译")


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
    """The torch that the told release of a package goes with; None where that isn't known."""
    version = environment.version(package)
    if version is None:
        return None
    rows = (row for row in _rows() if row.package == package)
    return next((row for row in rows if (named := versions_in(row.versions)) and named.has(version)), None)


def _fitting(package: str, environment: Environment) -> str | None:
    """The specifier of the package's releases for the told torch."""
    version = environment.version("torch")
    if version is None:
        return None
    rows = [row for row in _rows() if row.package == package]
    fitting = [row for row in rows if (named := versions_in(row.torch)) and named.has(version)]
    return fitting[-1].versions if fitting else None


def of_other_torch(hazard: Hazard, environment: Environment, run: Run, package: str, effect: Text) -> Iterator[Finding]:
    """A finding where a package goes with another torch than the one beside it. pip refuses to install such a pair."""
    row = torch_of(package, environment)
    if (
        row is None
        or not together(environment, package, "torch")
        or environment.within("torch", row.torch) is not False
    ):
        return
    fitting = _fitting(package, environment)
    installed = environment.complete or not from_file(environment, package)
    yield hazard.finding(
        Text(
            "{package} goes with torch{row}, and {torch} is beside it: {effect}.",
            "{package} 对应 torch{row}，而一同安装的是 {torch}：{effect}。",
        ).format(
            package=describe_package(environment, package),
            row=row.torch,
            torch=describe_package(environment, "torch"),
            effect=effect if installed else Text("pip finds no way to install both", "pip 无法同时安装两者"),
        ),
        certainty=Certainty.LIKELY,
        severity=Severity.ERROR,
        cure=(
            Text('pip install "{package}{fitting}"', '执行 pip install "{package}{fitting}"').format(
                package=package, fitting=fitting
            )
            if fitting
            else Text("Install the release of {package} for that torch", "安装对应该 torch 的 {package}").format(
                package=package
            ),
        ),
        spans=(
            span_of(environment, package, _BUILT_FOR.format(torch=row.torch.lstrip("="))),
            span_of(environment, "torch"),
        ),
        fixes=version_fix(environment, package, fitting) if fitting else (),
    )
