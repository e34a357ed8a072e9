"""The versions allowed by a specifier, as intervals, so that ranges can be compared with three possible answers.

``packaging`` tests a single version; here a file may state a range (``>=0.14,<0.15``), and the answer may be
"unknown". Importing ``packaging.specifiers`` also takes longer than everything else that is imported here.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import msgspec
from packaging.version import InvalidVersion, Version

Cut = tuple[Any, ...]
"""A point between versions: ``(0, version, 0)`` just before one, ``(0, version, 1)`` just after it."""

_LOWEST_BOUND: Cut = (-1,)
_HIGHEST_BOUND: Cut = (1,)
_CLAUSE_PATTERN = r"\s*(~=|===?|!=|<=|>=|<|>)\s*v?([0-9a-zA-Z][0-9a-zA-Z.!+_-]{0,80}?)(\.\*)?\s*$"
_MAX_LENGTH = 1000


class VersionInterval(msgspec.Struct, frozen=True):
    """A half-open interval of versions."""

    start: Cut
    end: Cut


class VersionSet(msgspec.Struct, frozen=True):
    """A set of versions as sorted, disjoint intervals. ``named`` are the versions written in the specifier."""

    intervals: tuple[VersionInterval, ...]
    named: tuple[Version, ...] = ()
    local: str | None = None
    """The local version (``cu118``), if one was written."""

    def contains(self, version: Version) -> bool | None:
        """Whether a version is in the set; None for a pre-release or development release exactly at its bound."""
        if self.local is not None and version.local is not None and version.local != self.local:
            return False
        cut = (0, without_local_version(version), 0)
        if any(interval.start <= cut < interval.end for interval in self.intervals):
            return True
        if version.is_prerelease and any(is_same_release(version, named) for named in self.named):
            return None if version not in self.named else False
        return False

    def covers(self, other: VersionSet) -> bool | None:
        """True if the other set is a subset of this one, False if they are disjoint, None otherwise."""
        if not other.intervals:
            return None
        if other.local is not None and self.local is not None and other.local != self.local:
            return False
        if all(any(one.start <= it.start and it.end <= one.end for one in self.intervals) for it in other.intervals):
            return True
        apart = all(it.end <= one.start or one.end <= it.start for it in other.intervals for one in self.intervals)
        return False if apart else None


def without_local_version(version: Version) -> Version:
    """The version without its local part: 2.1.0 for 2.1.0+cu118."""
    return version if version.local is None else parse_version(version.public) or version


def is_same_release(first: Version, other: Version) -> bool:
    """Whether two versions belong to one release: 0.16.0rc1 and 0.16."""
    width = max(len(first.release), len(other.release))
    pad = [(*version.release, *(0,) * (width - len(version.release))) for version in (first, other)]
    return first.epoch == other.epoch and pad[0] == pad[1]


@lru_cache(maxsize=4096)
def parse_version(text: str) -> Version | None:
    """Parse a version; None if it is invalid."""
    try:
        return Version(text) if len(text) <= _MAX_LENGTH else None
    except (InvalidVersion, ValueError):
        return None


@lru_cache(maxsize=4096)
def parse_specifier(specifier: str, *, released_only: bool = False) -> VersionSet | None:
    """The set of a specifier (``>=0.14,!=0.14.2``); None if it is invalid. The empty specifier allows all versions.

    ``released_only`` excludes pre-releases below ``==0.14.*``, which pip doesn't choose by itself.
    """
    if len(specifier) > _MAX_LENGTH:
        return None
    intervals = [VersionInterval(_LOWEST_BOUND, _HIGHEST_BOUND)]
    named: list[Version] = []
    local: str | None = None
    for clause in specifier.split(","):
        if not clause.strip():
            continue
        match = re.match(_CLAUSE_PATTERN, clause)
        version = parse_version(match[2]) if match else None
        if match is None or version is None:
            return None
        found = _clause_intervals(match[1], version, is_wildcard=bool(match[3]), released_only=released_only)
        if found is None:
            return None
        if version.local is not None and match[1] in ("==", "==="):
            local = version.local
        named.append(without_local_version(version))
        intervals = [
            VersionInterval(max(a.start, b.start), min(a.end, b.end))
            for a in intervals
            for b in found
            if max(a.start, b.start) < min(a.end, b.end)
        ]
    return VersionSet(tuple(intervals), tuple(named), local)


def _clause_intervals(
    operator: str, version: Version, *, is_wildcard: bool, released_only: bool
) -> tuple[VersionInterval, ...] | None:
    """The versions that one clause (``>=1.2``) allows, as intervals."""
    version = without_local_version(version)
    before, after = (0, version, 0), (0, version, 1)
    if operator == "~=":
        if len(version.release) < 2 or is_wildcard:
            return None
        return (VersionInterval(before, (0, _next_release(version.release[:-1], version.epoch), 0)),)
    if is_wildcard:
        if operator not in ("==", "!="):
            return None
        start = (0, version if released_only else _first_dev_release(version.release, version.epoch), 0)
        end = (0, _next_release(version.release, version.epoch), 0)
    else:
        start, end = before, after
    if operator in ("==", "==="):
        return (VersionInterval(start, end),)
    if operator == "!=":
        return (VersionInterval(_LOWEST_BOUND, start), VersionInterval(end, _HIGHEST_BOUND))
    if operator == ">=":
        return (VersionInterval(before, _HIGHEST_BOUND),)
    if operator == ">":
        return (VersionInterval(after, _HIGHEST_BOUND),)
    if operator == "<=":
        return (VersionInterval(_LOWEST_BOUND, after),)
    # `<0.16` excludes pre-releases of 0.16.
    edge = version if version.is_prerelease else _first_dev_release(version.release, version.epoch)
    return (VersionInterval(_LOWEST_BOUND, (0, edge, 0)),)


def _first_dev_release(release: tuple[int, ...], epoch: int) -> Version:
    return Version(f"{epoch}!{'.'.join(map(str, release))}.dev0")


def _next_release(release: tuple[int, ...], epoch: int) -> Version:
    return _first_dev_release((*release[:-1], release[-1] + 1), epoch)
