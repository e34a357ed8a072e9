"""Packages of the Python that runs gonogo: their versions, and links to its torch for other environments."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version


def installed_version(name: str) -> Version | None:
    """The version of a package in the running Python; None if it isn't installed or its version is invalid."""
    try:
        return Version(metadata.version(name))
    except (metadata.PackageNotFoundError, InvalidVersion):
        return None


def satisfies_specifier(version: Version | None, specifier: SpecifierSet) -> bool:
    """Whether a version satisfies a specifier; local version labels (``+cpu``, ``+cu121``) are ignored."""
    if version is None:
        return False
    public = SpecifierSet(",".join(str(part).partition("+")[0] for part in specifier))
    return public.contains(Version(version.public), prereleases=True)


def link_torch(packages: Path) -> list[str]:
    """Symlink this Python's torch into another environment's ``site-packages``; returns torch's requirements.

    The environment's Python must have the same minor version.
    """
    torch = metadata.distribution("torch")
    tops = {file.parts[0] for file in torch.files or [] if file.parts and file.parts[0] != ".."}
    for top in tops:
        source = Path(str(torch.locate_file(top)))
        if source.exists() and not (packages / top).exists():
            (packages / top).symlink_to(source.resolve())
    required = [Requirement(text) for text in torch.requires or []]
    return [str(entry) for entry in required if entry.marker is None or entry.marker.evaluate({"extra": ""})]
