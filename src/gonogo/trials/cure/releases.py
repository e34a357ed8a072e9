"""Other releases of the package in which a program fails: the nearest first, newer before older."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name
from packaging.version import Version

from gonogo.finding import Finding, Text, UserError, translated
from gonogo.hazards.index import all_hazards
from gonogo.prepare.packages.index import available_releases
from gonogo.prepare.packages.installed import installed_version
from gonogo.prepare.packages.names import STACK, can_overlay
from gonogo.trials.cure.candidate import Candidate

if TYPE_CHECKING:
    from gonogo.evidence.rehearsal.record import Failure
    from gonogo.evidence.run import Run
    from gonogo.trials.cure.trial import Trial

RELEASE = "release"
"""The kind of these candidates."""
_MAX_RELEASES_EACH_WAY = 2
"""At most this many releases are tried in each direction: the last patch release of each minor version."""
_INTERFACE_ERRORS = frozenset({"ImportError", "ModuleNotFoundError", "AttributeError", "TypeError"})
"""Exceptions that are typical of a call into a release that the caller was not written for."""
_PACKAGE_PATH_PATTERN = re.compile(r"(?:site|dist)-packages/([A-Za-z0-9_]+)/")
_NEAREST_RELEASE_TITLE = translated("{package} {version}, the nearest {which} release")
_RELEASE_DIFFERS_TITLE = translated("{package} {version}, the nearest release in which the failing code is different")
_NEWER, _OLDER = translated("newer"), translated("older")


def release_candidates(finding: Finding, trial: Trial) -> Iterator[Candidate]:
    """Releases of the package whose code raised, if versions are at fault or nothing else explains the failure."""
    hazard = next(hazard for hazard in all_hazards() if hazard.name == finding.hazard)
    of_versions = hazard.theme == "environment"
    if trial.record is None or trial.run is None:
        return
    failures = [rank.failure for rank in trial.record.ranks if rank.failure is not None]
    if not of_versions and not (hazard.fallback and failures and failures[0].type in _INTERFACE_ERRORS):
        return
    for package in _packages_at_fault(failures[0]) if failures else ():
        used = trial.record.ranks[0].versions.get(package)
        present = Version(used) if used else installed_version(package)
        if present is None:
            continue
        for version, which in _nearest_releases(package, present):
            title = _NEAREST_RELEASE_TITLE.format(package=package, version=version, which=which)
            yield _release_candidate(finding, trial.run, package, version, title)


def guessed_releases(finding: Finding, trial: Trial) -> Iterator[Candidate]:
    """The releases whose sources differ in the name, argument or line that failed."""
    from gonogo.trials.upstream.guess import guess_releases

    if trial.record is None or trial.run is None:
        return
    rank = next((rank for rank in trial.record.ranks if rank.failure is not None), None)
    if rank is None or rank.failure is None:
        return
    for guess in guess_releases(rank.failure.traceback, rank.versions):
        if guess.package in STACK and can_overlay(guess.package):
            title = _RELEASE_DIFFERS_TITLE.format(package=guess.package, version=guess.other)
            yield _release_candidate(finding, trial.run, guess.package, guess.other, title)


def _release_candidate(finding: Finding, run: Run, package: str, version: Version, title: Text) -> Candidate:
    edit = run.environment.replacing_version(package, f"=={version}")
    pins = () if edit is not None else (f"{package}=={version}",)
    return Candidate(finding, title, (edit,) if edit is not None else (), pins, size=1, kind=RELEASE)


def _packages_at_fault(failure: Failure) -> list[str]:
    """The packages on the failing stack, innermost first, that can be installed in an overlay."""
    found = []
    for frame in reversed(failure.frames):
        match = _PACKAGE_PATH_PATTERN.search(frame.path)
        name = canonicalize_name(match[1]) if match else ""
        if name in STACK and can_overlay(name) and name not in found:
            found.append(name)
    return found[:2]


def _nearest_releases(package: str, current_version: Version) -> Iterator[tuple[Version, Text]]:
    try:
        releases = [version for version in available_releases(package) if not version.is_prerelease]
    except UserError:
        return
    last_of_minor = {version.release[:2]: version for version in sorted(releases)}
    ends = sorted(last_of_minor.values())
    newer = [version for version in ends if version > current_version][:_MAX_RELEASES_EACH_WAY]
    older = [version for version in reversed(ends) if version < current_version][:_MAX_RELEASES_EACH_WAY]
    yield from ((version, _NEWER) for version in newer)
    yield from ((version, _OLDER) for version in older)
