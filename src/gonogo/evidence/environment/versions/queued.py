"""The versions that a queued job will have: those of its image's tag, and of what it installs before it trains."""

from __future__ import annotations

import re

import msgspec

from gonogo.evidence.environment.environment import Environment, Package
from gonogo.evidence.environment.versions.base_images import add_base_image
from gonogo.evidence.environment.versions.dockerfile import read_installs
from gonogo.evidence.environment.versions.listing import Listing, bytes_as_text
from gonogo.evidence.launch.manifest import Workload

_BRANCHES = re.compile(r"(?m)(?:^|[;&|{(])[ \t]*(?:if|case|for|while|until|function)\b|\|\|")
"""In a script with one of these, it is not settled which of its lines run."""


def read_queued(work: Workload) -> Environment:
    """What its file tells, as far as it does."""
    listing = Listing(work.container.source)
    if work.image is not None and work.image.text:
        add_base_image(listing, work.image.text, work.image.place)
    text = bytes_as_text(listing.source)
    for word in (work.setup, *work.words):
        if word is not None and word.place.end > word.place.start:
            part = text[word.place.start : word.place.end]
            part = re.sub(r"(?m)^[ \t]*#.*$", lambda match: " " * len(match[0]), part)
            part = re.sub(r"\\[ \t]*\r?\n", lambda match: " " * len(match[0]), part)
            before = dict(listing.packages)
            read_installs(listing, part, word.place.start, {})
            if _BRANCHES.search(part):
                listing.packages = {
                    name: package if before.get(name) is package else msgspec.structs.replace(package, specifier="")
                    for name, package in listing.packages.items()
                }
    return listing.environment()


def as_queued(work: Workload, found: Environment) -> Environment:
    """What is known of the job's environment, where ``found`` is what files beside it tell, over this machine.

    Where a file tells another version than the image's tag, either may be what trains: the image's, or the file's in an
    image that was made of both. So neither is known.
    """
    job, files = read_queued(work), found.told or found
    packages = {
        name: msgspec.structs.replace(package, specifier="") if _only_of_image(package, work, files) else package
        for name, package in job.packages.items()
    }
    job = msgspec.structs.replace(job, packages=packages)
    return msgspec.structs.replace(job.over(found), told=job.over(files))


def _only_of_image(package: Package, work: Workload, files: Environment) -> bool:
    """Whether its image alone tells this version, and a file another."""
    stated = files.packages.get(package.name)
    if stated is None or work.image is None or package.place != work.image.place or package.version is None:
        return False
    return Environment({package.name: package}).within(package.name, stated.specifier or ">=0") is not True
