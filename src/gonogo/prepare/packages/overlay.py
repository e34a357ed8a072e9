"""Overlays the packages of ``--with`` and their dependencies, and reports those that can't be, with the reason."""

from __future__ import annotations

import platform
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from gonogo.finding import Text, UserError, translated
from gonogo.prepare.packages.cache import (
    PackageNotInstallable,
    cached_or_installed_folder,
    cached_package_requirements,
    cached_package_version,
    is_locally_built,
)
from gonogo.prepare.packages.compatible_release import find_compatible_release, unmet_requirements
from gonogo.prepare.packages.installed import installed_version, satisfies_specifier
from gonogo.prepare.packages.names import PURE_PYTHON_REQUIREMENTS, STACK, can_overlay, needs_cuda
from gonogo.prepare.packages.places import ReportProgress
from gonogo.prepare.packages.requested import versions_from_options

BUILT_FROM_SOURCE_NOTE = translated("no wheel available, built from source on this machine, in a sandbox: {names}")


@dataclass(frozen=True)
class PackageOverlay:
    """A rehearsal's packages beyond this Python's: folders to put first on ``PYTHONPATH``, or another Python.

    ``skipped`` lists what differs from the request, as (what, why); ``differing`` has the canonical names of those
    packages: ``by_date`` those of them that differ only from the releases of a day,
    ``without_operators`` those that lack no more than compiled operators; ``reasons`` says of one by its canonical
    name, as (what, why), how it differs. ``torch`` is the requested version, if another one is there.
    """

    folders: tuple[Path, ...] = ()
    python: Path | None = None
    differing: tuple[str, ...] = ()
    torch: str = ""
    by_date: tuple[str, ...] = ()
    without_operators: tuple[str, ...] = ()
    versions: dict[str, Version] = field(default_factory=dict)
    skipped: tuple[tuple[Text, Text], ...] = ()
    reasons: dict[str, tuple[Text, Text]] = field(default_factory=dict)
    notes: tuple[Text, ...] = ()


def build_overlay(
    with_packages: tuple[str, ...], report_progress: ReportProgress = lambda _text: None, *, unconfined: bool = False
) -> PackageOverlay:
    """Overlay the packages of ``--with`` that the running Python lacks, and their dependencies.

    Raises UserError for options that can't be parsed and for versions that don't exist or can't be installed.
    """
    overlay = _OverlayBuilder(report_progress, unconfined=unconfined)
    for name, specifier in versions_from_options(with_packages).items():
        if satisfies_specifier(installed_version(name), specifier):
            continue
        if can_overlay(name) or _can_add(name):
            overlay.add_package(name, specifier, is_requested=True)
        else:
            overlay.report_not_overlayable(name, specifier)
    return overlay.build()


class _OverlayBuilder:
    """Overlays packages, and those of their dependencies for which the installed version doesn't satisfy them."""

    def __init__(self, report_progress: ReportProgress, *, unconfined: bool) -> None:
        self._report_progress = report_progress
        self._unconfined = unconfined
        self._folders: dict[str, Path] = {}
        self._versions: dict[str, Version] = {}
        self._asked: set[str] = set()
        self._specifiers: dict[str, SpecifierSet] = {}
        self._skipped: list[tuple[Text, Text]] = []
        self._reasons: dict[str, tuple[Text, Text]] = {}

    def add_package(self, name: str, specifier: SpecifierSet, *, is_requested: bool) -> None:
        """Overlay a package and its dependencies. A failure is an error only if the user requested the package."""
        if is_requested:
            self._asked.add(name)
        self._specifiers[name] = self._specifiers.get(name, SpecifierSet()) & specifier
        try:
            folder = cached_or_installed_folder(
                name, self._specifiers[name], self._report_progress, unconfined=self._unconfined
            )
        except PackageNotInstallable as error:
            if is_requested:
                raise _not_installable_error(name, specifier, error) from None
            self._skip_dependency(name, specifier, error.why)
            return
        self._folders[name] = folder
        self._versions[name] = cached_package_version(folder, name)
        for requirement in cached_package_requirements(folder, name):
            self._add_requirement(name, requirement)
        for line in PURE_PYTHON_REQUIREMENTS.get(name, ()):
            if line not in self._versions and (_can_add(line) or (can_overlay(line) and not installed_version(line))):
                self.add_package(line, SpecifierSet(), is_requested=False)

    def _add_requirement(self, owner: str, requirement: Requirement) -> None:
        name = canonicalize_name(requirement.name)
        have = self._versions.get(name) or installed_version(name)
        self._specifiers.setdefault(name, SpecifierSet())
        if have is not None and satisfies_specifier(have, requirement.specifier):
            self._specifiers[name] &= requirement.specifier
        elif name in self._asked or not can_overlay(name):
            if have is not None:
                self._report_conflict(owner, requirement, have)
        else:
            self.add_package(name, requirement.specifier, is_requested=False)

    def _report_conflict(self, owner: str, requirement: Requirement, present_version: Version) -> None:
        self._skipped.append(
            (
                translated("{owner} {version}: its requirement {requirement}").format(
                    owner=owner, version=self._versions.get(owner, ""), requirement=requirement
                ),
                translated("rehearsed with {name} {have}").format(name=requirement.name, have=present_version),
            )
        )

    def _skip_dependency(self, name: str, specifier: SpecifierSet, reason: str) -> None:
        self._differ(name, specifier, translated("could not be installed: {why}").format(why=reason))

    def _differ(self, name: str, specifier: SpecifierSet, why: Text) -> None:
        self._reasons[name] = (Text(f"{name}{specifier}", f"{name}{specifier}"), why)
        self._skipped.append(self._reasons[name])

    def report_not_overlayable(self, name: str, specifier: SpecifierSet) -> None:
        """Report that a package can't be overlaid."""
        have = installed_version(name)
        why = (
            translated("it is not installed here, and can't be overlaid because it is a compiled package")
            if have is None
            else translated("can't be overlaid; rehearsed with the installed {name} {have}").format(
                name=name, have=have
            )
        )
        self._differ(name, specifier, why)

    def build(self) -> PackageOverlay:
        """The overlay, with notes on what was installed, built and skipped."""
        self._overlay_compatible_releases()
        for name in STACK:
            self._check_installed(name)
        laid = ", ".join(f"{name} {version}" for name, version in self._versions.items())
        note = translated("installed over this Python's packages: {laid}").format(laid=laid)
        built = [f"{name} {self._versions[name]}" for name, folder in self._folders.items() if is_locally_built(folder)]
        notes = [note] if self._versions else []
        notes += [BUILT_FROM_SOURCE_NOTE.format(names=", ".join(built))] if built else []
        return PackageOverlay(
            tuple(self._folders.values()),
            versions=self._versions,
            skipped=tuple(self._skipped),
            reasons=self._reasons,
            notes=tuple(notes),
        )

    def _overlay_compatible_releases(self) -> None:
        """Overlay other releases of installed stack packages that are incompatible with the overlay."""
        for name in STACK:
            version = installed_version(name)
            if version is None or name in self._versions or not self._versions:
                continue
            wrong = unmet_requirements(_installed_requirements(name), self._versions)
            found = (
                find_compatible_release(name, version, wrong, self._versions, self._report_progress) if wrong else None
            )
            if found is not None:
                self.add_package(name, SpecifierSet(f"=={found}"), is_requested=False)

    def _check_installed(self, name: str) -> None:
        """Report requirements of an installed stack package that the overlay doesn't satisfy."""
        version = installed_version(name)
        if version is None or name in self._versions:
            return
        for requirement in unmet_requirements(_installed_requirements(name), self._versions):
            have = self._versions[canonicalize_name(requirement.name)]
            self._skipped.append(
                (
                    translated("{name} {version}, which is installed: its requirement {requirement}").format(
                        name=name, version=version, requirement=requirement
                    ),
                    translated("rehearsed with {other} {have}").format(other=requirement.name, have=have),
                )
            )


def _can_add(name: str) -> bool:
    """Whether a compiled package can be added: it isn't installed, so nothing installed can conflict with it."""
    return name != "torch" and not needs_cuda(name) and installed_version(name) is None


def _installed_requirements(name: str) -> list[Requirement]:
    """The requirements of an installed package on this machine, without extras."""
    found = [Requirement(text) for text in metadata.requires(name) or []]
    return [entry for entry in found if entry.marker is None or entry.marker.evaluate({"extra": ""})]


def _not_installable_error(name: str, specifier: SpecifierSet, error: PackageNotInstallable) -> UserError:
    if not error.versions:
        return UserError(
            translated("{what} could not be installed: {why}").format(what=f"{name}{specifier}", why=error.why)
        )
    releases = [version for version in error.versions if not version.is_prerelease] or list(error.versions)
    return UserError(
        translated("no {what} for Python {python}: the nearest are {nearest}, the newest is {newest}").format(
            what=f"{name}{specifier}",
            python=platform.python_version(),
            nearest=", ".join(map(str, _nearest_releases(releases, specifier))),
            newest=releases[-1],
        )
    )


def _nearest_releases(releases: list[Version], specifier: SpecifierSet) -> list[Version]:
    """Two releases below and two above the version in a specifier."""
    if not specifier:
        return releases[-2:]
    wanted = Version(next(iter(specifier)).version.rstrip(".*"))
    before = [release for release in releases if release < wanted]
    after = [release for release in releases if release > wanted]
    return [*before[-2:], *after[:2]]
