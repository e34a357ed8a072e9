"""Resolves the packages of an environment with uv before anything is installed, using wheels only.

If a package is available only as sources, a wheel is built here, confined, and uv is run again. A package whose
requested version isn't available is used in the next later one that is, else in any other version, or left out.
One that had no release yet on the environment's date is used in its first release.
"""

from __future__ import annotations

import shutil
import sys
import urllib.parse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from gonogo.finding import Text
from gonogo.prepare.packages.building import BuildFailed, build_wheel
from gonogo.prepare.packages.names import NEVER_BUILT_FROM_SOURCE
from gonogo.prepare.packages.places import ReportProgress
from gonogo.prepare.packages.sources import SourceUnavailable, fetch_release_sources, is_compiled, newest_release
from gonogo.prepare.packages.uv import WHEELS_ONLY_OPTIONS, UvFailed, run_uv

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_MAX_ATTEMPTS = 60
"""The most runs of uv: one for each package that has to be built, or needed in another version."""
_MAX_NEWER_RELEASES = 4
"""The most requested packages for which a newer release than the resolved one is tried."""
LOCK_FILE_NAME = "pylock.toml"
_NO_DATE = "9999-01-01"


class ResolvedPackage(msgspec.Struct, frozen=True):
    """One package that will be installed."""

    name: str
    version: str
    host: str
    """The server that it comes from; empty for a local file."""
    size: int = 0
    """The size of its wheel in bytes; 0 if unknown."""


class PackageResolver:
    """Resolves the packages of one environment; what is learned in one run of uv is kept for the next."""

    def __init__(
        self,
        requirements: Sequence[str],
        pins: Sequence[str],
        package_urls: Mapping[str, str],
        excluded_packages: Sequence[str],
        as_of: str | None,
        folder: Path,
        activity: Text,
        report_progress: ReportProgress,
        *,
        unconfined: bool,
    ) -> None:
        self._asked = {Requirement(line).name: line for line in requirements}
        self._addresses = dict(package_urls)
        self._forced = list(pins)
        self._never = list(excluded_packages)
        self._as_of = as_of
        self._folder = folder
        self._what = activity
        self._report_progress = report_progress
        self._unconfined = unconfined
        self._wheels = folder / "wheels"
        self._wheels.mkdir()
        self._loose: dict[str, str] = {}
        self._left_out: dict[str, str] = {}
        self._not_built: dict[str, str] = {}
        self._tried_newer: set[str] = set()
        self._instead: dict[str, str] = {}
        self._newest = as_of
        self._undated: list[str] = []
        self._with_wheel: set[str] = set()
        self.without_date = False
        """Whether the date had to be given up, because too little from before it supports this Python."""
        self.built: dict[str, str] = {}
        """Versions of what was built here for want of a wheel."""

    @property
    def unavailable_packages(self) -> dict[str, str]:
        """Requested packages that aren't available as requested, with the reason."""
        all_refused = {**self._loose, **self._left_out}
        return {name: why for name, why in all_refused.items() if name in self._asked or name in self._addresses}

    def resolve(self, extra_requirements: Sequence[str] = ()) -> list[ResolvedPackage]:
        """Resolve the packages with uv, which writes the lock file :data:`LOCK_FILE_NAME`. Raises UvFailed."""
        self._newest = self._as_of
        for _ in range(_MAX_ATTEMPTS):
            lines = self._requirement_lines(extra_requirements)
            try:
                found = self._resolve_with_uv(lines, self._newest)
                if self._build_dependency_of_newer_release(lines, self._newest, found):
                    continue
                self.without_date = self._newest is None and self._as_of is not None
                return found
            except UvFailed as error:
                instead = set(self._instead.values())
                exact = {line for line in lines if "==" in line and "@" not in line} - instead
                if self._newest and "exclude-newer" in error.text:
                    late = [name for name in error.packages_after_date if name not in self._undated]
                    for name in late:
                        self._take_after_date(name)
                    self._newest = self._newest if late else None
                    continue
                if self._newest and self._take_later_wheels(error):
                    continue
                if self._build_missing_wheel(error) or self._allow_pre_releases(error):
                    continue
                refused = next((name for name in error.unavailable_packages if name not in self._left_out), None)
                if refused is not None:
                    if not self._take_next_release(refused, self._not_built.get(refused) or error.reason):
                        self._loosen_or_leave_out(refused, self._not_built.get(refused) or error.reason)
                elif not exact <= set(self._forced):
                    self._forced = sorted({*exact, *self._forced})  # pins conflict but were installed together
                elif instead:
                    self._instead.clear()  # they do not go with the rest
                elif self._newest is not None:
                    self._give_up_date()  # nothing from that date supports this Python
                elif (pinned := self._find_conflicting_pin(error)) is not None:
                    self._loosen_or_leave_out(pinned, error.reason)
                else:
                    raise
        raise UvFailed(f"error: uv was asked {_MAX_ATTEMPTS} times, and still finds no set of packages")

    def _requirement_lines(self, extra_requirements: Sequence[str]) -> list[str]:
        lines = [
            self._instead.get(name, _requirement_without_version(line) if name in self._loose else line)
            for name, line in self._asked.items()
            if name not in self._left_out and name not in self._addresses
        ]
        lines += [line for name, line in self._addresses.items() if name not in self._left_out]
        known = (*self._asked, *self._addresses, *self._left_out)
        return lines + [line for line in extra_requirements if Requirement(line).name not in known]

    def _build_dependency_of_newer_release(
        self, lines: Sequence[str], exclude_newer: str | None, chosen: Sequence[ResolvedPackage]
    ) -> bool:
        """Build a dependency of a newer release that is available only as sources; True if one was built.

        With wheels only, uv would use an older release with fewer dependencies: omegaconf 2.0, because
        antlr4-python3-runtime has no wheel. pip builds that wheel and uses the newer release.
        """
        there = {one.name: one.version for one in chosen}
        fixed = {Requirement(line).name for line in self._forced} | set(self._addresses)
        names = [name for name in self._asked if name in there and name not in fixed | self._tried_newer]
        if not names:
            return False
        try:
            alone = self._resolve_with_uv(
                [line for line in lines if Requirement(line).name in names], exclude_newer, "--no-deps"
            )
        except UvFailed:
            alone = []
        later = [one for one in alone if Version(one.version) > Version(there.get(one.name) or one.version)]
        self._tried_newer.update(names)
        for one in later[:_MAX_NEWER_RELEASES]:
            error = self._try_resolve([*lines, f"{one.name}=={one.version}"], exclude_newer)
            if error is not None and self._build_missing_wheel(error):
                self._tried_newer.discard(one.name)  # it may have more dependencies without a wheel
                return True
        self._resolve_with_uv(lines, exclude_newer)  # to write the lock file
        return False

    def _try_resolve(self, lines: Sequence[str], exclude_newer: str | None) -> UvFailed | None:
        try:
            self._resolve_with_uv(lines, exclude_newer)
        except UvFailed as error:
            return error
        return None

    def _resolve_with_uv(self, lines: Sequence[str], exclude_newer: str | None, *options: str) -> list[ResolvedPackage]:
        files = {
            "requirements.in": lines,
            "overrides.txt": self._forced,
            "excludes.txt": [*self._never, *self._left_out],
        }
        for name, content in files.items():
            (self._folder / name).write_text("\n".join([*content, ""]), encoding="utf-8")
        (self._folder / LOCK_FILE_NAME).unlink(missing_ok=True)
        words = ["pip", "compile", "requirements.in", "--overrides", "overrides.txt", "--excludes", "excludes.txt"]
        # Otherwise uv takes an old pre-release of a package whose releases are all sources, such as deepspeed.
        words += ["--python", sys.executable, *WHEELS_ONLY_OPTIONS, "--prerelease", "explicit"]
        words += ["--exclude-newer", exclude_newer] if exclude_newer else []
        if exclude_newer:
            words += [word for name in self._undated for word in ("--exclude-newer-package", f"{name}={_NO_DATE}")]
        words += ["--format", LOCK_FILE_NAME, "-o", LOCK_FILE_NAME, *options]
        run_uv(words, cwd=self._folder, what=self._what, report_progress=self._report_progress, find_links=self._wheels)
        lock = tomllib.loads((self._folder / LOCK_FILE_NAME).read_text(encoding="utf-8"))
        return [_parse_package(package) for package in lock.get("packages", ())]

    def _loosen_or_leave_out(self, name: str, reason: str) -> None:
        is_asked = name in self._asked and name not in self._addresses
        taken = self._instead.pop(name, None) is not None  # the next release does not go with the rest: any other
        (self._loose if is_asked and (taken or name not in self._loose) else self._left_out)[name] = reason
        self._forced = [line for line in self._forced if Requirement(line).name != name]

    def leave_out(self, name: str, reason: str) -> None:
        """Have the next resolution do without a package, whoever requires it."""
        self._left_out[name] = reason
        self._forced = [line for line in self._forced if Requirement(line).name != name]

    def _take_later_wheels(self, error: UvFailed) -> bool:
        """Take the next release with a wheel of requested packages whose release of the date has none for this Python.

        The rest stays as of the date. False if there is no such package; of a pinned one the pin is let go of later.
        """
        taken = {*self._undated, *self._addresses, *self._left_out, *self.built, *self._with_wheel}
        found = False
        unpinned = {name for name, line in self._asked.items() if "==" not in line}
        for name in (one for one in error.packages_without_wheels if one in unpinned - taken):
            requirement = Requirement(self._asked[name])
            folder, date = self._folder / "dated", self._as_of or ""
            specifier = str(requirement.specifier)
            release = newest_release(name, specifier, date, folder, self._what, self._report_progress)
            requirement.specifier &= SpecifierSet(f">={release}" if release is not None else "")
            later = self._oldest_release(requirement)
            if release is None or later is None or later.endswith(f"=={release}"):
                self._with_wheel.add(name)  # or there is none at all: it has to be built
                continue
            self._undated.append(name)
            self._instead[name], found = later, True
        return found

    def _take_later_dependency(self, name: str) -> bool:
        """Take a package that only others require in whatever later release has a wheel; False for any other.

        If the others do not go with one, the date is given up for all.
        """
        if self._newest is None or name in self._asked:
            return False
        if name in self._undated:
            self._give_up_date()
        else:
            self._undated.append(name)
        return True

    def _give_up_date(self) -> None:
        """Take releases of any date; a dependency that was built may then be needed in a later release."""
        self._newest = None
        self._left_out.clear()
        self.built.clear()
        self._tried_newer.clear()

    def _take_after_date(self, name: str) -> None:
        """Take a package that had no fitting release on the date in the first one since: as near to it as there is."""
        self._undated.append(name)
        line = self._asked.get(name)
        if line is not None and name not in self._loose and (first := self._oldest_release(Requirement(line))):
            self._instead[name] = first

    def _take_next_release(self, name: str, reason: str) -> bool:
        """Take the first release after the pinned one that has a wheel; False if none is pinned or it was tried."""
        if name not in self._asked or name in self._addresses or name in self._loose:
            return False
        requirement = Requirement(self._asked[name])
        pins = [one for one in requirement.specifier if one.operator == "==" and not one.version.endswith(".*")]
        if len(pins) != 1:
            return False
        requirement.specifier = SpecifierSet(f">{pins[0].version}")
        if (later := self._oldest_release(requirement)) is None:
            return False
        self._loose[name] = reason
        self._instead[name] = later
        self._undated.append(name)
        self._forced = [line for line in self._forced if Requirement(line).name != name]
        return True

    def _oldest_release(self, requirement: Requirement) -> str | None:
        """The requirement of the oldest release with a wheel that fits one, of any date; None if there is none."""
        (self._folder / "oldest.in").write_text(f"{requirement}\n", encoding="utf-8")
        words = ["pip", "compile", "oldest.in", "--quiet", "--no-deps", "--no-header", "--no-annotate"]
        words += ["--python", sys.executable, *WHEELS_ONLY_OPTIONS, "--resolution", "lowest-direct"]
        try:
            output = run_uv(
                words, cwd=self._folder, what=self._what, report_progress=self._report_progress, find_links=self._wheels
            )
        except UvFailed:
            return None
        return next((line for line in map(str.strip, output.splitlines()) if "==" in line), None)

    def _allow_pre_releases(self, error: UvFailed) -> bool:
        """Allow pre-releases of packages that have nothing else, mostly nightly builds; True if there are any."""
        unreleased = error.packages_with_only_pre_releases
        alone = [name for name in unreleased if name in self._asked and "dev" not in self._asked[name]]
        for name in alone:
            requirement = Requirement(self._asked[name])
            requirement.specifier &= SpecifierSet(">=0.dev0")  # which makes uv accept pre-releases
            self._asked[name] = str(requirement)
        return bool(alone)

    def _find_conflicting_pin(self, error: UvFailed) -> str | None:
        """A requested package with a pinned version that uv's error mentions; None if there is none."""
        return next(
            (
                name
                for name, line in self._asked.items()
                if "==" in line
                and name not in (*self._loose, *self._left_out, *self._addresses)
                and error.mentions(name)
            ),
            None,
        )

    def _build_missing_wheel(self, error: UvFailed) -> bool:
        """Build a wheel of a package for which uv finds none; False if none can be built."""
        for name, versions in error.packages_without_wheels.items():
            if name in (*self.built, *self._not_built, *self._addresses):
                continue
            if name in NEVER_BUILT_FROM_SOURCE:
                if self._take_later_dependency(name):
                    return True
                continue
            line = self._asked.get(name)
            specifier = str(Requirement(line).specifier) if line is not None and name not in self._loose else versions
            forced = next((one for one in self._forced if Requirement(one).name == name), None)
            specifier = str(Requirement(forced).specifier) if forced is not None else specifier
            place = self._folder / f"source-{name}"
            try:
                source = fetch_release_sources(name, specifier, self._as_of, place, self._what, self._report_progress)
                pinned = line is not None and name not in self._loose and "==" in specifier
                if not pinned and is_compiled(source.path) and self._oldest_release(Requirement(name)) is not None:
                    # A later release has a wheel: nearer to the run than what minutes of compiling may end with.
                    if self._take_later_dependency(name):
                        return True
                    self._not_built[name] = "there is no wheel of it; it is compiled, and a later release has a wheel"
                    continue
                found = build_wheel(source, name, self._report_progress, unconfined=self._unconfined)
            except (SourceUnavailable, BuildFailed) as refused:
                kind = "its build failed" if isinstance(refused, BuildFailed) else "its sources can't be had"
                self._not_built[name] = f"there is no wheel of it, and {kind}: {refused}"
                continue
            finally:
                shutil.rmtree(place, ignore_errors=True)
            shutil.copyfile(found.wheel, self._wheels / found.wheel.name)
            self.built[name] = found.version
            return True
        return False


def _requirement_without_version(line: str) -> str:
    """The requirement without its version."""
    requirement = Requirement(line)
    return f"{requirement.name}[{','.join(sorted(requirement.extras))}]" if requirement.extras else requirement.name


def _parse_package(package: Mapping[str, Any]) -> ResolvedPackage:
    wheels = package.get("wheels") or ()
    file: Mapping[str, Any] = wheels[0] if wheels else package.get("archive") or {}
    host = urllib.parse.urlsplit(str(file.get("url") or "")).hostname or ""
    size = file.get("size")
    return ResolvedPackage(
        str(package.get("name")), str(package.get("version", "")), host, size if type(size) is int else 0
    )
