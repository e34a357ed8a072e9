"""pyproject.toml and Pipfile: dependencies in the notations of PEP 621, Poetry, PDM, uv and Pipenv."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from gonogo.evidence.environment.package_name import canonical_package_name
from gonogo.evidence.environment.versions.listing import (
    NAME,
    PackageListing,
    find_string_literal,
    latin1_text,
    repository_address,
    validated_specifier,
)
from gonogo.evidence.environment.versions.requirements import read_requirement

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


_DOTTED_PATTERN = re.compile(r"(?:[\w\"'-]{1,100}[ \t]*\.[ \t]*){30}")
_MAX_NOT_FOUND = 1000
"""Limit of searches from the beginning, for requirements that are escaped in the file or parsed in another order."""


def read_pyproject(listing: PackageListing) -> None:
    """Add all dependencies of a pyproject.toml, including those of extras and groups."""
    try:
        if _DOTTED_PATTERN.search(listing.source.text):
            return  # tomllib is quadratic in the number of a key's dots, and real keys have few
        content = tomllib.loads(listing.source.text)
    except (ValueError, RecursionError):
        return
    text = latin1_text(listing.source)
    position = 0
    for requirement in _pep621_requirements(content):
        written = requirement.encode().decode("latin-1")
        at = find_string_literal(text, written, position)
        if at < 0 and listing.not_found < _MAX_NOT_FOUND:
            listing.not_found += 1
            at = find_string_literal(text, written, 0)
        if at >= 0:
            position = at + len(written)
            read_requirement(listing, listing.source, written, at)
    sources = _mapping_or_empty(_mapping_or_empty(_mapping_or_empty(content.get("tool")).get("uv")).get("sources"))
    for name, source in sources.items():
        package = listing.packages.get(canonical_package_name(name))
        if package is not None and (address := dependency_url(source)):
            listing.packages[package.name] = msgspec.structs.replace(package, address=address, written="")
    for header, table in _dependency_tables(content):
        start = re.search(rf"^[ \t]*\[[ \t]*{re.escape(header)}[ \t]*\]", text, re.MULTILINE)
        for name, dependency in table.items():
            _add_table_dependency(listing, text, start.end() if start else 0, name, dependency)


def _pep621_requirements(content: Mapping[str, Any]) -> Iterator[str]:
    project = _mapping_or_empty(content.get("project"))
    lists = [project.get("dependencies")]
    lists += _common_requirements(_mapping_or_empty(project.get("optional-dependencies")))
    lists += _common_requirements(_mapping_or_empty(content.get("dependency-groups")))
    tool = _mapping_or_empty(content.get("tool"))
    lists += _mapping_or_empty(_mapping_or_empty(tool.get("pdm")).get("dev-dependencies")).values()
    lists += [
        _mapping_or_empty(tool.get("uv")).get("dev-dependencies"),
        _mapping_or_empty(tool.get("uv")).get("override-dependencies"),
    ]
    for one in lists:
        if isinstance(one, list):
            yield from (entry for entry in one if isinstance(entry, str))


def _common_requirements(extras: Mapping[str, Any]) -> list[list[str]]:
    """The requirements of extras, without those that differ between extras: it is unknown which are installed."""
    lists = [[entry for entry in one if isinstance(entry, str)] for one in extras.values() if isinstance(one, list)]
    requested: dict[str, set[str]] = {}
    for one in lists:
        for entry in one:
            requested.setdefault(_requirement_name(entry), set()).add(entry)
    return [[entry for entry in one if len(requested[_requirement_name(entry)]) == 1] for one in lists]


def _requirement_name(requirement: str) -> str:
    match = re.match(NAME, requirement.strip())
    return re.sub(r"[-_.]+", "-", match[0]).lower() if match else requirement


def _dependency_tables(content: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The tables of dependencies that Poetry, Pipenv and uv use."""
    for name in ("packages", "dev-packages"):
        yield name, _mapping_or_empty(content.get(name))
    poetry = _mapping_or_empty(_mapping_or_empty(content.get("tool")).get("poetry"))
    for name in ("dependencies", "dev-dependencies"):
        yield f"tool.poetry.{name}", _mapping_or_empty(poetry.get(name))
    for name, group in _mapping_or_empty(poetry.get("group")).items():
        yield f"tool.poetry.group.{name}.dependencies", _mapping_or_empty(_mapping_or_empty(group).get("dependencies"))


def _mapping_or_empty(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _add_table_dependency(listing: PackageListing, text: str, start: int, name: str, dependency: Any) -> None:
    version = dependency.get("version") if isinstance(dependency, Mapping) else dependency
    if not re.fullmatch(NAME, name) or (version is not None and not isinstance(version, str)):
        return
    address = dependency_url(dependency)
    written = (version or "").encode().decode("latin-1")
    line = re.compile(
        rf"^[ \t]*[\"']?{re.escape(name)}[\"']?[ \t]*=[^\n]*?[\"']({re.escape(written)})[\"']", re.MULTILINE
    )
    match = line.search(text, start) if written else None
    place = listing.source.place(match.start(1), match.end(1)) if match else None
    if name == "python":
        return
    whole = listing.source.place(match.start() + len(match[0]) - len(match[0].lstrip()), match.end()) if match else None
    listing.add_package(
        name,
        poetry_specifier(version or ""),
        whole,
        notation="requirement" if not address else "",
        specifier_place=place,
        address=address,
    )


def dependency_url(dependency: Any) -> str:
    """The URL or path of a dependency in a table of Poetry, Pipenv or uv; empty if it is from an index."""
    table = _mapping_or_empty(dependency)
    git = table.get("git")
    if isinstance(git, str):
        revisions = (table.get(key) for key in ("rev", "ref", "tag", "branch"))
        return repository_address(git, next((one for one in revisions if isinstance(one, str)), ""))
    return next((one for key in ("url", "file", "path") if isinstance(one := table.get(key), str)), "")


def poetry_specifier(text: str) -> str:
    """Poetry's ``^0.14.2``, ``~1.2``, ``1.2.*`` and ``1.2`` as a specifier; empty if any version is allowed."""
    if "|" in text:
        return ""
    clauses = []
    for clause in re.split(r"\s*,\s*|(?<=[\w*])\s+(?=[<>=!~^])", text.strip()):
        match = re.fullmatch(r"(\^|~(?!=))\s*v?(\d+(?:\.\d+){0,3})\S*", clause)
        if match is None:
            bare = re.fullmatch(r"=?\s*v?(\d[\w.+]*(?:\.\*)?)", clause)
            clauses.append(f"=={bare[1]}" if bare else "" if clause == "*" else clause)
            continue
        numbers = [int(part) for part in match[2].split(".")]
        if match[1] == "^":
            kept = next((index for index, number in enumerate(numbers) if number), len(numbers) - 1)
        else:
            kept = min(1, len(numbers) - 1)
        upper = [*numbers[:kept], numbers[kept] + 1]
        clauses.append(f">={match[2]},<{'.'.join(map(str, upper))}")
    return validated_specifier(",".join(clause for clause in clauses if clause))
