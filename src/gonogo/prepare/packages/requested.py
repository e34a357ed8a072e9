"""The versions that a run will have: from ``--environment FILE`` and ``--with NAME==VERSION``."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name

from gonogo.evidence.environment.environment import Environment
from gonogo.evidence.environment.reading import read_environment
from gonogo.evidence.source_file import SourceFile
from gonogo.finding import Text, UserError, translated
from gonogo.prepare.packages.names import PURE_PYTHON_REQUIREMENTS, needs_cuda


@dataclass(frozen=True)
class RequestedVersions:
    """Specifiers by canonical name. ``without_version`` has the packages for which the file gives no version."""

    specifiers: dict[str, SpecifierSet]
    without_version: tuple[str, ...] = ()
    extras: dict[str, str] = field(default_factory=dict)
    """The extras of packages that are requested with some, such as ``[deepspeed,qlora]``."""
    python: str | None = None
    addresses: dict[str, str] = field(default_factory=dict)
    """Packages that come from a repository, an archive or a path instead of an index."""
    index_lines: tuple[str, ...] = ()
    """The lines of the file that name an index, each with its location; they are not followed."""


def versions_from_options(
    options: tuple[str, ...], listed_versions: Mapping[str, SpecifierSet] = MappingProxyType({})
) -> dict[str, SpecifierSet]:
    """The versions in ``--with``; for a bare NAME the listed one, else any. Raises UserError for anything else."""
    found: dict[str, SpecifierSet] = {}
    for option in options:
        try:
            requirement = Requirement(option)
            specifiers = list(requirement.specifier)
            exact = len(specifiers) == 1 and specifiers[0].operator == "==" and "*" not in specifiers[0].version
            if specifiers and not exact:
                raise InvalidRequirement(option)
        except InvalidRequirement:
            raise UserError(
                translated(
                    "--with {option}: write NAME==VERSION, for example deepspeed==0.14.2, or NAME for any version"
                ).format(option=option)
            ) from None
        name = canonicalize_name(requirement.name)
        found[name] = requirement.specifier or listed_versions.get(name, requirement.specifier)
    return found


def versions_from_file(path: Path) -> RequestedVersions:
    """The versions in a requirements file, a lock file, a JSON file or the output of ``gonogo env``.

    Raises UserError for a file that can't be read, and for the first line that can't be parsed.
    """
    try:
        source = SourceFile.read(path)
    except UserError as error:
        raise UserError(_prefix_with_environment_option(error.text)) from None
    environment = read_environment(source)
    for unread in environment.unread:
        raise UserError(_prefix_with_environment_option(unread.reason))
    specifiers: dict[str, SpecifierSet] = {}
    without: list[str] = []
    addresses: dict[str, str] = {}
    for name, package in environment.packages.items():
        if package.address and name not in ("torch", *PURE_PYTHON_REQUIREMENTS) and not needs_cuda(name):
            addresses[name] = package.address
            continue
        try:
            specifier = SpecifierSet(package.specifier)
        except InvalidSpecifier:
            specifier = None
        if specifier is None or (not package.specifier and not package.written):
            without.append(name)  # a folder or a repository, of unknown version
        else:
            specifiers[name] = specifier
    extras = {name: f"[{package.extras}]" for name, package in environment.packages.items() if package.extras}
    lines = index_option_lines(environment)
    return RequestedVersions(specifiers, tuple(without), extras, environment.python.string, addresses, lines)


def index_option_lines(environment: Environment) -> tuple[str, ...]:
    """``requirements.txt:3: --extra-index-url https://…`` for each line that names an index, without passwords."""
    found = []
    for place in environment.index_lines:
        text = place.source.data[place.start : place.end].decode("utf-8", "replace")
        shown = re.sub(r"(?<=://)[^/@\s]*@", "", " ".join(text.split()))[:200]
        near = os.path.relpath(place.source.path)
        found.append(f"{place.source.path if near.startswith('..') else near}:{place.line}: {shown}")
    return tuple(dict.fromkeys(found))


def _prefix_with_environment_option(text: Text) -> Text:
    """The error message about a file, with ``--environment`` inserted before its name."""
    return Text(
        re.sub(r"can't read (?!--)", "can't read --environment ", text.en, count=1),
        re.sub(r"无法读取 (?!--)", "无法读取 --environment ", text.zh, count=1),
    )
