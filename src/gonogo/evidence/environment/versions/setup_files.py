"""A project's own setup: ``setup.py`` and ``setup.cfg``, which are read but not run, and install scripts."""

from __future__ import annotations

import configparser
import re

import msgspec

from gonogo.evidence.environment.own_package import setup_requirements
from gonogo.evidence.environment.versions.dockerfile import read_install_command
from gonogo.evidence.environment.versions.listing import (
    PackageListing,
    find_string_literal,
    latin1_text,
    resolve_included_path,
)
from gonogo.evidence.environment.versions.requirements import read_requirement, read_requirements
from gonogo.evidence.source_file import SourceFile
from gonogo.finding import UserError

_CONTROL_FLOW_PATTERN = re.compile(r"(?m)^[ \t]*(?:if|case|for|while|until)\b")
"""In a script with control flow, it is unknown which lines are executed."""


def read_setup_py(listing: PackageListing) -> None:
    """Add ``install_requires``, and the requirements files that it is read from."""
    found = setup_requirements(listing.source.text)
    if found is None:
        return
    text = latin1_text(listing.source)
    position = 0
    for requirement in found.requires:
        written = requirement.encode().decode("latin-1")
        at = find_string_literal(text, written, position)
        at = find_string_literal(text, written, 0) if at < 0 else at
        position = max(position, at)
        if at >= 0:
            read_requirement(listing, listing.source, written, at)
        else:  # the string is computed, not in the file
            read_requirement(listing, SourceFile.from_text(listing.source.path, requirement), written, 0)
    for name in found.files:
        _include_requirements(listing, name)


def _include_requirements(listing: PackageListing, name: str) -> None:
    path = resolve_included_path(listing.source, listing.source, name)
    if path is None:
        return
    try:
        included = PackageListing(SourceFile.read(path))
    except UserError:
        return
    read_requirements(included)
    for package in included.packages.values():
        listing.packages.setdefault(package.name, package)


def read_setup_cfg(listing: PackageListing) -> None:
    """Add ``[options] install_requires``."""
    parser = configparser.RawConfigParser()
    try:
        parser.read_string(listing.source.text)
        lines = parser.get("options", "install_requires", fallback="").splitlines()
    except configparser.Error:
        return
    text = latin1_text(listing.source)
    for line in (each.strip() for each in lines):
        if line.startswith("file:"):
            for name in line.removeprefix("file:").split(","):
                _include_requirements(listing, name.strip())
        elif line and not line.startswith("#"):
            written = line.encode().decode("latin-1")
            read_requirement(listing, listing.source, written, max(text.find(written), 0))


def read_setup_script(listing: PackageListing) -> None:
    """Add the packages of ``pip install`` and ``conda install`` in a shell script that sets up a project."""
    text = latin1_text(listing.source)
    text = re.sub(r"(?m)^[ \t]*#.*$", lambda match: " " * len(match[0]), text)
    text = re.sub(r"\\[ \t]*\r?\n", lambda match: " " * len(match[0]), text)
    read_install_command(listing, text, 0, {})
    if _CONTROL_FLOW_PATTERN.search(text):
        listing.packages = {
            name: msgspec.structs.replace(package, specifier="") for name, package in listing.packages.items()
        }
