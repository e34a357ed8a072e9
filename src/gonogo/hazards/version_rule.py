"""Hazards of installed packages that a page declares: which packages and versions, and what to report.

In the head of a page, if the versions alone decide::

    versions = [["numpy", ">=2"], ["torch", "<2.3"]]
    install = ["numpy", "<2"]
    cause.en = "{torch} was compiled for numpy 1, and {numpy} is beside it: …"
    cause.zh = "…"

The texts may contain each package of ``versions`` as a placeholder, which becomes ``numpy 2.0.1`` if the version is
known. If more than the versions decides, a class beside the page overrides
:meth:`IncompatibleVersions.version_context` and returns further placeholders and places. There are three more kinds:
a ``package`` that is older than transformers requires (:class:`BelowMinimumVersion`), ``packages`` that were compiled
for another torch (:class:`BuiltForOtherTorch`), and a package that the run needs but that is not installed
(:class:`PackageNotInstalled`, which needs code). Anything that goes
beyond these is a plain Hazard.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET, UnsetType

from gonogo.evidence.environment.compatibility import (
    ReleaseRequirement,
    TorchPinnedReleases,
    releases_for_torch,
    requirements_of_release,
    torch_pinned_releases,
)
from gonogo.evidence.environment.version_range import parse_specifier
from gonogo.hazards.facts.installed import (
    are_declared_in_files,
    certainty_of_package_versions,
    come_from_one_source,
    describe_package,
    is_complete_training_environment,
    package_version_span,
    pip_install,
    version_fixes,
)
from gonogo.hazards.hazard import PageDeclarations
from gonogo.hazards.page import HazardPage
from gonogo.hazards.rule import (
    Certainty,
    Environment,
    Field,
    Finding,
    Findings,
    Hazard,
    Run,
    Severity,
    Span,
    Text,
    translated,
)

if TYPE_CHECKING:
    from gonogo.evidence.environment.environment import Environment


class VersionContext(msgspec.Struct, frozen=True):
    """What makes those versions a problem for a run: placeholders of the texts, places, and how certain it is."""

    words: Mapping[str, object] = {}
    spans: tuple[Span | None, ...] = ()
    certainty: Certainty | None = None


class VersionPageDeclarations(PageDeclarations, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The keys that the page of an :class:`IncompatibleVersions` may have."""

    versions: tuple[tuple[str, str], ...]
    pinned: bool | UnsetType = UNSET
    install: tuple[str, str]
    cause: Text
    label: tuple[str, Text] | UnsetType = UNSET
    confirm: tuple[Text, ...] | UnsetType = UNSET


class IncompatibleVersions(Hazard):
    """A hazard of packages that fail together at certain versions, or of one package with faulty versions."""

    declares = VersionPageDeclarations

    versions: tuple[tuple[str, str], ...]
    """The packages and their affected versions; the finding points at each of them, at the one to change first."""
    pinned: bool = False
    """Whether only versions from a file count, not those of the Python environment that runs gonogo."""
    install: tuple[str, str]
    """The package and the specifier to install as the cure."""
    cause: Text
    cures: tuple[Text, ...] = ()
    """Cures besides that installation."""
    label: tuple[str, Text] | None = None
    """A package and the label of its place in the finding."""
    certainty: Certainty | None = None
    """None: as certain as the versions are."""
    confirm: tuple[Text, ...] = ()

    def version_context(self, run: Run) -> VersionContext | None:
        """What makes the versions a problem for this run; None if they are none."""
        return VersionContext()

    def in_environment(self, environment: Environment, run: Run) -> Findings:
        """The affected versions, in a run for which they are a problem."""
        names = [name for name, _ in self.versions]
        if not (are_declared_in_files if self.pinned else come_from_one_source)(environment, *names):
            return
        if not all(environment.within(name, versions) for name, versions in self.versions):
            return
        context = self.version_context(run)
        if context is None:
            return
        labels = dict((self.label,) if self.label else ())
        words = {name: describe_package(environment, name) for name in names}
        certainty = context.certainty or self.certainty or certainty_of_package_versions(environment, run, *names)
        yield self.finding(
            self.cause.format(**words, **context.words),
            certainty=certainty,
            severity=self.severity,
            cure=(pip_install(*self.install), *self.cures),
            spans=(*(package_version_span(environment, name, labels.get(name)) for name in names), *context.spans),
            fixes=version_fixes(environment, *self.install),
        )


class MinimumVersionPageDeclarations(PageDeclarations, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The keys that the page of a :class:`BelowMinimumVersion` may have."""

    package: str
    effect: Text
    sure_from: str | UnsetType = UNSET


class BelowMinimumVersion(Hazard):
    """A package that is older than the environment's transformers requires."""

    declares = MinimumVersionPageDeclarations

    package: str
    effect: Text
    """What happens as a result."""
    sure_from: str = ">=0"
    """The versions of transformers that certainly reject it."""

    def in_environment(self, environment: Environment, run: Run) -> Findings:
        """The package below the minimum that the environment's transformers requires."""
        if not come_from_one_source(environment, "transformers", self.package):
            return
        sure = environment.within("transformers", self.sure_from)
        certainty = certainty_of_package_versions(environment, run, "transformers", self.package)
        for row in requirements_of_package(environment, "transformers"):
            requested = row.requires.get(self.package, "").split(",")
            lowest = next((one for one in requested if one.startswith(">=")), None)
            if lowest is not None and environment.within(self.package, f"<{lowest[2:]}"):
                pair = ("transformers", self.package, lowest)
                yield package_pair_finding(
                    self, environment, pair, self.effect, certainty if sure else Certainty.LIKELY
                )


class TorchBuildPageDeclarations(PageDeclarations, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The keys that the page of a :class:`BuiltForOtherTorch` may have."""

    packages: tuple[str, ...]
    effect: Text


class BuiltForOtherTorch(Hazard):
    """Packages that were compiled for another torch than the environment's; pip refuses to install such a pair."""

    declares = TorchBuildPageDeclarations

    packages: tuple[str, ...]
    effect: Text
    """What happens if they were installed nevertheless."""

    def in_environment(self, environment: Environment, run: Run) -> Findings:
        """A release that was built for another torch than the environment's."""
        for package in self.packages:
            row = torch_build_of(package, environment)
            if row is None or not come_from_one_source(environment, package, "torch"):
                continue
            if environment.within("torch", row.torch) is not False:
                continue
            fitting = versions_for_torch(package, environment)
            installed = environment.complete or not are_declared_in_files(environment, package)
            label = translated("built for torch {torch}").format(torch=row.torch.lstrip("="))
            yield self.finding(
                translated("{package} is meant for torch{wanted}, but is used with {torch}: {effect}.").format(
                    package=describe_package(environment, package),
                    wanted=row.torch,
                    torch=describe_package(environment, "torch"),
                    effect=self.effect if installed else translated("pip can't find a way to install both"),
                ),
                certainty=Certainty.LIKELY,
                cure=pip_install(package, fitting)
                if fitting
                else translated("Install the release of {package} that matches that torch version").format(
                    package=package
                ),
                spans=(package_version_span(environment, package, label), package_version_span(environment, "torch")),
                fixes=version_fixes(environment, package, fitting) if fitting else (),
            )


class MissingPackagePageDeclarations(PageDeclarations, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The keys that the page of a :class:`PackageNotInstalled` may have."""

    packages: tuple[str, ...] | UnsetType = UNSET
    cause: Text


class PackageNotInstalled(Hazard):
    """A package that the run needs and that a complete listing of a training environment does not contain."""

    declares = MissingPackagePageDeclarations

    packages: tuple[str, ...]
    """The package, followed by alternatives that serve as well."""
    cause: Text
    """May contain ``{package}`` and ``{asked}``, the setting that requires it."""
    cures: tuple[Text, ...] = ()
    """Cures besides its installation."""

    def requested_by(self, run: Run) -> tuple[str, Field] | None:
        """The setting that requires the package, as the finding names it, and its field; None if there is none."""
        return None

    def in_environment(self, environment: Environment, run: Run) -> Findings:
        """A setting that requires the package, and a listing that doesn't contain it."""
        requested = self.requested_by(run)
        if requested is not None:
            yield from self.missing_package_findings(environment, requested, self.packages)

    def missing_package_findings(
        self, environment: Environment, requested_setting: tuple[str, Field], packages: tuple[str, ...]
    ) -> Findings:
        """A finding if none of the packages is installed."""
        if not is_complete_training_environment(environment) or any(map(environment.has, packages)):
            return
        in_file = are_declared_in_files(environment, "torch")
        if not in_file and not has_accelerator_driver():
            return  # files are checked on a machine that doesn't train
        words = {"package": packages[0], "asked": requested_setting[0]}
        without = translated("the package list contains torch but not {package}")
        confirm = translated("pip show {package} finds nothing in the training environment")
        yield self.finding(
            self.cause.format(**words),
            certainty=Certainty.CERTAIN if in_file else Certainty.POSSIBLE,
            severity=Severity.ERROR if in_file else Severity.WARNING,
            cure=(translated("pip install {package}").format(**words), *(cure.format(**words) for cure in self.cures)),
            spans=(requested_setting[1].span(), package_version_span(environment, "torch", without.format(**words))),
            confirm=confirm.format(**words),
        )


def has_accelerator_driver() -> bool:
    """Whether an accelerator's driver is installed here, as on a machine that trains."""
    return any(map(os.path.exists, ("/proc/driver/nvidia/version", "/dev/davinci_manager", "/dev/kfd")))


def requirements_of_package(environment: Environment, requiring: str) -> tuple[ReleaseRequirement, ...]:
    """What the environment's release of a package requires of other packages."""
    version = environment.version(requiring)
    return _cached_requirements(requiring, str(version)) if version is not None else ()


@lru_cache(maxsize=256)
def _cached_requirements(requiring: str, version: str) -> tuple[ReleaseRequirement, ...]:
    return requirements_of_release(requiring, version)


def package_pair_finding(
    hazard: Hazard, environment: Environment, pair: tuple[str, str, str], effect: Text, certainty: Certainty
) -> Finding:
    """The finding for a ``pair``: a package, another in a wrong version, and the specifier that the first wants."""
    package_name, package, specifier = pair
    words = {
        "name": package_name,
        "asking": describe_package(environment, package_name),
        "package": package,
        "specifier": specifier,
        "has": describe_package(environment, package),
        "effect": effect,
    }
    requires = translated("{asking} requires {package}{specifier}")
    return hazard.finding(
        translated("{asking} requires {package}{specifier}, but is used with {has}: {effect}.").format(**words),
        certainty=certainty,
        cure=(
            pip_install(package, specifier),
            translated("Or install the release of {name} that works with {has}").format(**words),
        ),
        spans=(
            package_version_span(environment, package),
            package_version_span(environment, package_name, requires.format(**words)),
        ),
        fixes=version_fixes(environment, package, specifier),
    )


def version_hazard_class(page: HazardPage) -> type[Hazard]:
    """The class of a page that declares versions or packages."""
    if "versions" in page.head:
        return IncompatibleVersions
    return BelowMinimumVersion if "package" in page.head else BuiltForOtherTorch


def torch_build_of(package: str, environment: Environment) -> TorchPinnedReleases | None:
    """The torch that the environment's release of a package was built for; None if unknown."""
    version = environment.version(package)
    if version is None:
        return None
    rows = torch_pinned_releases(package)
    return next((row for row in rows if (named := parse_specifier(row.versions)) and named.contains(version)), None)


def versions_for_torch(package: str, environment: Environment) -> str | None:
    """The specifier of the package's newest releases for the environment's torch."""
    version = environment.version("torch")
    return releases_for_torch(package, version) if version is not None else None
