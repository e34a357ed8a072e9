"""Another release of an installed package, for when the installed one is incompatible with an overlaid package.

transformers 4.51 requires an older huggingface-hub than the installed datasets does: a run with that transformers had
an older datasets too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name as canonical
from packaging.version import Version

from gonogo.finding import UserError
from gonogo.prepare.packages.cache import (
    PackageNotInstallable,
    cached_or_installed_folder,
    cached_package_requirements,
    cached_versions,
)
from gonogo.prepare.packages.index import available_releases
from gonogo.prepare.packages.places import ReportProgress

_LOWER_BOUND_OPERATORS = (">=", ">", "~=", "==", "===")


def unmet_requirements(
    requirements: Iterable[Requirement], overlay_versions: Mapping[str, Version]
) -> list[Requirement]:
    """The requirements that the version of an overlaid package does not satisfy."""
    return [
        requirement
        for requirement in requirements
        if (have := overlay_versions.get(canonical(requirement.name))) is not None
        and not requirement.specifier.contains(have.public, prereleases=True)
    ]


def find_compatible_release(
    name: str,
    installed_version: Version,
    wrong: list[Requirement],
    overlay_versions: Mapping[str, Version],
    report_progress: ReportProgress,
) -> Version | None:
    """The release nearest to the installed one that is compatible with the overlay; None if none is found.

    ``wrong`` are the installed release's unmet requirements. Releases in the cache are preferred; others are fetched
    in a binary search.
    """
    older = _requires_newer(wrong[0], overlay_versions)

    def meets_requirements(version: Version) -> bool:
        folder = cached_or_installed_folder(name, SpecifierSet(f"=={version}"), report_progress)
        return not unmet_requirements(cached_package_requirements(folder, name), overlay_versions)

    def has_same_conflict(version: Version) -> bool:
        folder = cached_or_installed_folder(name, SpecifierSet(f"=={version}"), report_progress)
        return any(
            _requires_newer(found, overlay_versions) == older
            for found in unmet_requirements(cached_package_requirements(folder, name), overlay_versions)
        )

    try:
        cached = [
            version
            for version in cached_versions(name)
            if (version < installed_version) == older and meets_requirements(version)
        ]
        if cached:
            return max(cached) if older else min(cached)
        way = [
            release
            for release in available_releases(name)
            if release != installed_version and (release < installed_version) == older
        ]
        found = _bisect_first(way[::-1] if older else way, lambda version: not has_same_conflict(version))
        return found if found is not None and meets_requirements(found) else None
    except (PackageNotInstallable, UserError):
        return None


def _requires_newer(requirement: Requirement, overlay_versions: Mapping[str, Version]) -> bool:
    """Whether an unmet requirement asks for a newer version than the overlaid one."""
    have = overlay_versions[canonical(requirement.name)]
    return any(
        part.operator in _LOWER_BOUND_OPERATORS and Version(part.version.removesuffix(".*")) >= have
        for part in requirement.specifier
        if not part.contains(have.public, prereleases=True)
    )


def _bisect_first(candidates: list[Version], predicate: Callable[[Version], bool]) -> Version | None:
    """The first candidate for which ``predicate`` holds, by binary search: it must then hold for all later ones."""
    low, high = 0, len(candidates)
    while low < high:
        middle = (low + high) // 2
        if predicate(candidates[middle]):
            high = middle
        else:
            low = middle + 1
    return candidates[low] if low < len(candidates) else None
