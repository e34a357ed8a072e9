"""Another release of an installed package, where the installed one does not go with what was laid over.

transformers 4.51 takes an older huggingface-hub than the installed datasets needs: a run that had that transformers had
an older datasets too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name as canonical
from packaging.version import Version

from gonogo.finding.errors import UserError
from gonogo.prepare.packages.cache import PackageNotInstallable, cached_versions, folder_with, requirements_in
from gonogo.prepare.packages.index import releases_of
from gonogo.prepare.packages.places import Say

_NEEDS_NEWER = (">=", ">", "~=", "==", "===")


def misfits(requirements: Iterable[Requirement], laid: Mapping[str, Version]) -> list[Requirement]:
    """The requirements that a version that was laid over does not meet."""
    return [
        requirement
        for requirement in requirements
        if (have := laid.get(canonical(requirement.name))) is not None
        and not requirement.specifier.contains(have.public, prereleases=True)
    ]


def fitting_release(
    name: str, installed: Version, wrong: list[Requirement], laid: Mapping[str, Version], say: Say
) -> Version | None:
    """The release nearest to the installed one that goes with what was laid over; None where none is found.

    ``wrong`` are the installed one's requirements that are not met. From the cache where one is there; else releases
    are fetched, half of those that are left put out by each.
    """
    older = _wants_newer(wrong[0], laid)

    def fits(version: Version) -> bool:
        folder = folder_with(name, SpecifierSet(f"=={version}"), say)
        return not misfits(requirements_in(folder, name), laid)

    def is_wrong_alike(version: Version) -> bool:
        folder = folder_with(name, SpecifierSet(f"=={version}"), say)
        return any(_wants_newer(found, laid) == older for found in misfits(requirements_in(folder, name), laid))

    try:
        cached = [version for version in cached_versions(name) if (version < installed) == older and fits(version)]
        if cached:
            return max(cached) if older else min(cached)
        way = [release for release in releases_of(name) if release != installed and (release < installed) == older]
        found = _first(way[::-1] if older else way, lambda version: not is_wrong_alike(version))
        return found if found is not None and fits(found) else None
    except (PackageNotInstallable, UserError):
        return None


def _wants_newer(requirement: Requirement, laid: Mapping[str, Version]) -> bool:
    """Whether a requirement that is not met asks for something newer than was laid over."""
    have = laid[canonical(requirement.name)]
    return any(
        part.operator in _NEEDS_NEWER and Version(part.version.removesuffix(".*")) >= have
        for part in requirement.specifier
        if not part.contains(have.public, prereleases=True)
    )


def _first(way: list[Version], holds: Callable[[Version], bool]) -> Version | None:
    """The first version on the way that ``holds``, where it holds for all behind that one."""
    low, high = 0, len(way)
    while low < high:
        middle = (low + high) // 2
        if holds(way[middle]):
            high = middle
        else:
            low = middle + 1
    return way[low] if low < len(way) else None
