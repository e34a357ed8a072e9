"""The versions in a container or a queued job, from its image's tag and the packages installed before training."""

from __future__ import annotations

import re

import msgspec

from gonogo.evidence.environment.environment import Environment, Package
from gonogo.evidence.environment.versions.base_images import add_base_image
from gonogo.evidence.environment.versions.dockerfile import read_install_command
from gonogo.evidence.environment.versions.listing import PackageListing, latin1_text
from gonogo.evidence.environment.versions.requirements import read_requirement
from gonogo.evidence.field import Field
from gonogo.evidence.launch.job_file import YAML
from gonogo.evidence.launch.jobs.workload import Workload
from gonogo.evidence.source_file import Place

_BRANCHES_PATTERN = re.compile(r"(?m)(?:^|[;&|{(])[ \t]*(?:if|case|for|while|until|function)\b|\|\|")
"""In a script with branches or loops, it is unknown which lines are executed."""


def read_job_environment(workload: Workload, script: Place | None = None) -> Environment:
    """The environment stated by a job's file; ``script`` as for :func:`job_environment_of`."""
    listing = PackageListing(workload.container.source)
    if workload.image is not None and workload.image.text:
        add_base_image(listing, workload.image.text, workload.image.place)
    for package in workload.packages:
        read_requirement(listing, listing.source, package.text or "", package.place.start, replace=True)
    for word in (workload.setup, *workload.words):
        if word is not None:
            listing = _listing_after_script(listing, word.place)
    return listing.to_environment() if script is None else _listing_after_script(listing, script).to_environment()


def read_container_environment(image: Field, script: Place | None) -> Environment:
    """The environment stated by the name of a container's image and the install commands run in it."""
    place = image.place if image.string else script
    if place is None:
        return Environment.unknown()
    listing = PackageListing(place.source)
    if image.place is not None and image.string:
        add_base_image(listing, image.string, image.place)
    return listing.to_environment() if script is None else _listing_after_script(listing, script).to_environment()


def _listing_after_script(listing: PackageListing, script: Place) -> PackageListing:
    """The packages after a shell has run the script, given those that were there before."""
    if script.source is not listing.source:
        before, listing = listing, PackageListing(script.source)
        listing.packages, listing.facts = dict(before.packages), dict(before.facts)
    part = latin1_text(listing.source)[script.start : script.end]
    part = re.sub(r"(?m)^[ \t]*#.*$", _replace_with_blanks, part)
    part = re.sub(r"\\[ \t]*\r?\n", _replace_with_blanks, part)
    if listing.source.path.endswith(YAML) and part.startswith('"'):
        part = part.replace("\\n", " \n")  # the escaped line break of a double-quoted YAML scalar
    earlier = dict(listing.packages)
    read_install_command(listing, part, script.start, {})
    if _BRANCHES_PATTERN.search(part):
        listing.packages = {
            name: package if earlier.get(name) is package else msgspec.structs.replace(package, specifier="")
            for name, package in listing.packages.items()
        }
    return listing


def _replace_with_blanks(match: re.Match[str]) -> str:
    return " " * len(match[0])


def job_environment_of(workload: Workload, script: Place | None, found: Environment) -> Environment:
    """The known environment of a job; ``found`` is that of files next to the job's file, over this machine's.

    ``script``: the script in another file that the job's command runs, if any.
    """
    return _merge_image_environment(
        read_job_environment(workload, script), workload.image.place if workload.image is not None else None, found
    )


def container_environment(image: Field, script: Place | None, found: Environment) -> Environment:
    """The known environment of a container that runs ``script``; ``found`` as for :func:`job_environment_of`."""
    return _merge_image_environment(read_container_environment(image, script), image.place, found)


def _merge_image_environment(image_environment: Environment, image: Place | None, found: Environment) -> Environment:
    """Merge the environment of an image and a job with ``found``, which is less certain as it is from elsewhere.

    If a file and the image's tag state different versions, the run may use either: the image's, or the file's if the
    image was built from both. The version then counts as unknown.
    """
    files = found.declared or found
    packages = {
        name: msgspec.structs.replace(package, specifier="")
        if _is_contradicted_image_version(package, image, files)
        else package
        for name, package in image_environment.packages.items()
    }
    image_environment = msgspec.structs.replace(image_environment, packages=packages)
    return msgspec.structs.replace(image_environment.merged_over(found), declared=image_environment.merged_over(files))


def _is_contradicted_image_version(package: Package, image: Place | None, files: Environment) -> bool:
    """Whether only the image states this version, and a file states another one."""
    stated = files.packages.get(package.name)
    if stated is None or image is None or package.place != image or package.version is None:
        return False
    return Environment({package.name: package}).within(package.name, stated.specifier or ">=0") is not True
