from __future__ import annotations

from functools import cache, lru_cache
from typing import TYPE_CHECKING

import msgspec

from gonogo.evidence.environment.version_range import parse_version
from gonogo.evidence.tables import TABLES
from gonogo.hazards.facts.installed import are_declared_in_files, package_version_span
from gonogo.hazards.rule import Certainty, Environment, Findings, Hazard, Run, Severity, Text, translated

if TYPE_CHECKING:
    from packaging.version import Version
_OPEN_SERIES_COUNT = 3
"""How many of the newest series may have got another release since the table was made."""


class ReleaseSeries(msgspec.Struct, frozen=True):
    """The last release of each minor version of a package, the oldest first."""

    package: str
    last: tuple[str, ...]
    source: str


class _ReleasesTable(msgspec.Struct, frozen=True):
    """The file of release series by package."""

    released: tuple[ReleaseSeries, ...]


class PinnedVersionNeverReleased(Hazard):
    def in_environment(self, environment: Environment, run: Run) -> Findings:
        """An exact version that is past the last release of its series."""
        if environment.complete:
            return  # it is installed
        for name in ("deepspeed", "transformers", "accelerate", "peft", "trl"):
            version = environment.version(name)
            if version is None or not are_declared_in_files(environment, name):
                continue
            past_the_last = find_unreleased(name, version)
            if past_the_last is None:
                continue
            near, old = past_the_last
            yield self.finding(
                translated("There is no {name} {version} on PyPI; there is {near}.").format(
                    name=name, version=version, near=Text(" and ".join(near), "、".join(near))
                ),
                certainty=Certainty.LIKELY if old else Certainty.POSSIBLE,
                severity=Severity.ERROR if old else Severity.WARNING,
                cure=translated("Pin {near}, or another release that exists").format(near=near[0]),
                spans=package_version_span(environment, name),
                confirm=translated("pip index versions {name} does not list this version").format(name=name),
            )


@cache
def _release_series() -> tuple[ReleaseSeries, ...]:
    data = (TABLES / "compatibility" / "released.json").read_bytes()
    return msgspec.json.decode(data, type=_ReleasesTable).released


@lru_cache(maxsize=256)
def find_unreleased(package: str, version: Version) -> tuple[tuple[str, ...], bool] | None:
    """For a version past the last of its series: the nearest releases, and whether the series has certainly ended.

    None if the version exists or may exist (a yanked release can still be installed).
    """
    row = next((row for row in _release_series() if row.package == package), None)
    if row is None or version.is_prerelease or version.is_postrelease or version.local is not None:
        return None
    last = [one for one in map(parse_version, row.last) if one is not None]
    if version.release[:2] < last[0].release[:2] or len(version.release) > 3:
        return None
    if any(one.release[:2] == version.release[:2] and version <= one for one in last):
        return None
    at = [index for index, one in enumerate(last) if one < version][-1]
    near = tuple(str(one) for one in last[at : at + 2])
    return near, at < len(last) - _OPEN_SERIES_COUNT
