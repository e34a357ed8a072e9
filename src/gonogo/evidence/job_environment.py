"""The versions that a container or a queued job will have: its image's tag, and what it installs before it trains."""

from __future__ import annotations

import re

import msgspec

from gonogo.evidence.environment.environment import Environment, Package
from gonogo.evidence.environment.versions.base_images import add_base_image
from gonogo.evidence.environment.versions.dockerfile import read_installs
from gonogo.evidence.environment.versions.listing import PackageListing, bytes_as_text
from gonogo.evidence.environment.versions.requirements import read_requirement
from gonogo.evidence.field import Field
from gonogo.evidence.launch.job_file import YAML
from gonogo.evidence.launch.jobs.workload import Workload
from gonogo.evidence.source_file import Place

_BRANCHES = re.compile(r"(?m)(?:^|[;&|{(])[ \t]*(?:if|case|for|while|until|function)\b|\|\|")
"""In a script with one of these, it is not settled which of its lines run."""


def read_queued(work: Workload, script: Place | None = None) -> Environment:
    """What its file tells, as far as it does; ``script`` as for :func:`as_queued`."""
    listing = PackageListing(work.container.source)
    if work.image is not None and work.image.text:
        add_base_image(listing, work.image.text, work.image.place)
    for package in work.packages:
        read_requirement(listing, listing.source, package.text or "", package.place.start, replace=True)
    for word in (work.setup, *work.words):
        if word is not None:
            listing = _after(listing, word.place)
    return listing.environment() if script is None else _after(listing, script).environment()


def read_image(image: Field, script: Place | None) -> Environment:
    """What the name of a container's image tells, as far as it does, and what is installed where it runs."""
    place = image.place if image.string else script
    if place is None:
        return Environment.unknown()
    listing = PackageListing(place.source)
    if image.place is not None and image.string:
        add_base_image(listing, image.string, image.place)
    return listing.environment() if script is None else _after(listing, script).environment()


def _after(listing: PackageListing, script: Place) -> PackageListing:
    """What there is once a shell has run what stands at a place, where this was there before."""
    if script.source is not listing.source:
        before, listing = listing, PackageListing(script.source)
        listing.packages, listing.facts = dict(before.packages), dict(before.facts)
    part = bytes_as_text(listing.source)[script.start : script.end]
    part = re.sub(r"(?m)^[ \t]*#.*$", _blank, part)
    part = re.sub(r"\\[ \t]*\r?\n", _blank, part)
    if listing.source.path.endswith(YAML) and part.startswith('"'):
        part = part.replace("\\n", " \n")  # as a scalar in such quotes writes the end of a line
    earlier = dict(listing.packages)
    read_installs(listing, part, script.start, {})
    if _BRANCHES.search(part):
        listing.packages = {
            name: package if earlier.get(name) is package else msgspec.structs.replace(package, specifier="")
            for name, package in listing.packages.items()
        }
    return listing


def _blank(match: re.Match[str]) -> str:
    return " " * len(match[0])


def as_queued(work: Workload, script: Place | None, found: Environment) -> Environment:
    """What is known of the job's environment, where ``found`` is what files beside it tell, over this machine.

    ``script``: what its command runs, where that is a script in another file.
    """
    return _in_image(read_queued(work, script), work.image.place if work.image is not None else None, found)


def in_container(image: Field, script: Place | None, found: Environment) -> Environment:
    """What is known of a container's environment, in which ``script`` runs; ``found`` as for :func:`as_queued`."""
    return _in_image(read_image(image, script), image.place, found)


def _in_image(inside: Environment, image: Place | None, found: Environment) -> Environment:
    """What an image and a job tell, over ``found``, which is no more than likely: it is of another place.

    Where a file tells another version than the image's tag, either may be what trains: the image's, or the file's in an
    image that was made of both. So neither is known.
    """
    files = found.declared or found
    packages = {
        name: msgspec.structs.replace(package, specifier="") if _only_of_image(package, image, files) else package
        for name, package in inside.packages.items()
    }
    inside = msgspec.structs.replace(inside, packages=packages)
    return msgspec.structs.replace(inside.over(found), declared=inside.over(files))


def _only_of_image(package: Package, image: Place | None, files: Environment) -> bool:
    """Whether its image alone tells this version, and a file another."""
    stated = files.packages.get(package.name)
    if stated is None or image is None or package.place != image or package.version is None:
        return False
    return Environment({package.name: package}).within(package.name, stated.specifier or ">=0") is not True
