"""JSON files that list packages: a mapping of package to version, ``pip list``, ``pip inspect``, ``gonogo env`` …"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from gonogo.evidence.environment.environment import Environment
from gonogo.evidence.environment.package_name import canonical_package_name
from gonogo.evidence.environment.versions.environment_json import read_environment_json
from gonogo.evidence.environment.versions.listing import (
    NAME,
    PackageListing,
    exact_specifier,
    latin1_text,
    repository_address,
    validated_specifier,
)
from gonogo.evidence.environment.versions.pyproject import dependency_url
from gonogo.evidence.source_file import Place
from gonogo.finding import translated

_NOT_JSON = translated("{where} is not valid JSON: {why}")
_NOT_A_VERSION = translated('{path}: {name}: {version} is not a version: write {{"deepspeed": "0.14.2", …}}')


_MAX_FAILED_SEARCHES = 1000
"""Limit of searches from the beginning, for names that are escaped in the file or parsed in another order."""


def read_json(listing: PackageListing) -> Environment:
    """Read the listing's JSON file."""
    try:
        content: Any = json.loads(listing.source.text)
    except (ValueError, RecursionError) as error:
        line = error.lineno if isinstance(error, json.JSONDecodeError) else 1
        why = error.msg if isinstance(error, json.JSONDecodeError) else "too deep"
        start = listing.source.line_start(line)
        reason = _NOT_JSON.format(where=f"{listing.source.path}:{line}", why=why)
        listing.record_unparsed(listing.source.place(start, start), reason)
        return listing.to_environment()
    if isinstance(content, Mapping) and isinstance(content.get("environment"), Mapping):
        if isinstance(content["environment"].get("packages"), (dict, list)):  # `gonogo env --format json`
            content = content["environment"]
        elif isinstance(content.get("installed"), list):  # `pip inspect`, whose environment contains the markers
            markers = content["environment"]
            if isinstance(markers.get("python_full_version"), str):
                listing.add_fact("python", markers["python_full_version"])
    if isinstance(content, Mapping) and isinstance(content.get("packages"), (dict, list)):
        read_environment_json(listing, content)
        content = content["packages"]
    elif isinstance(content, Mapping) and isinstance(content.get("installed"), list):
        listing.complete = True
        content = [
            {**_mapping_or_empty(one.get("metadata")), "direct_url": one.get("direct_url")}
            for one in content["installed"]
            if isinstance(one, Mapping)
        ]
    elif isinstance(content, Mapping) and isinstance(content.get("default"), Mapping) and "_meta" in content:
        content = {**_mapping_or_empty(content.get("develop")), **content["default"]}  # Pipfile.lock
        listing.complete = True
    elif isinstance(content, list):
        listing.complete = True
    text = latin1_text(listing.source)
    if isinstance(content, list):
        for entry in content:
            if isinstance(entry, Mapping) and isinstance(entry.get("name"), str):
                _add_package(
                    listing, text, entry["name"], entry.get("version"), in_list=True, address=_direct_url(entry)
                )
            else:
                _skip_entry(listing, entry, None, None)
    elif isinstance(content, Mapping):
        for name, version in content.items():
            stated = version.get("version") if isinstance(version, Mapping) else version
            if isinstance(version, (list, bool)) or (
                isinstance(version, Mapping) and not isinstance(stated, (str, type(None)))
            ):
                _skip_entry(listing, name, version, None)
            elif not isinstance(version, Mapping) or "version" in version or "git" in version:
                _add_package(listing, text, name, stated, in_list=False, address=dependency_url(version))
    return listing.to_environment()


def _skip_entry(listing: PackageListing, name: Any, version: Any, place: Place | None) -> None:
    """Record an entry that is not a package with a version."""
    reason = _NOT_A_VERSION.format(path=listing.source.path, name=repr(name)[:80], version=repr(version)[:80])
    listing.record_unparsed(place or listing.source.place(0, 0), reason)


def _mapping_or_empty(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _direct_url(entry: Mapping[str, Any]) -> str:
    """The URL of a package that was not installed from an index, as in ``pip inspect`` (PEP 610)."""
    direct_url = _mapping_or_empty(entry.get("direct_url"))
    url, vcs = direct_url.get("url"), _mapping_or_empty(direct_url.get("vcs_info"))
    if not isinstance(url, str):
        return ""
    commit = vcs.get("commit_id")
    return repository_address(url, commit if isinstance(commit, str) else "") if vcs.get("vcs") == "git" else url


def _add_package(
    listing: PackageListing, text: str, name: str, version: Any, *, in_list: bool, address: str = ""
) -> None:
    if not re.fullmatch(NAME, name) or isinstance(version, (bool, list, Mapping)):
        return
    stated = "" if version is None else str(version)
    place, version_place = _find_places(listing, text, name, stated, in_list=in_list)
    operator = re.match(r"\s*(?:[~=!<>])", stated)
    specifier = validated_specifier(stated) if operator else exact_specifier(stated)
    if not in_list and stated and (not specifier or specifier.startswith("===")):
        _skip_entry(listing, name, version, version_place)
    listing.add_package(
        name,
        specifier,
        place,
        notation="" if in_list else ("requirement" if operator else "bare") if stated else "",
        specifier_place=version_place,
        replace=canonical_package_name(name) in listing.packages,
        address=address,
    )


def _find_places(
    listing: PackageListing, text: str, name: str, version: str, *, in_list: bool
) -> tuple[Place | None, Place | None]:
    """The places of the package and its version in the file, found by searching for their quoted text."""
    if not (name.isascii() and version.isascii()):
        return None, None
    key = json.dumps(name)
    quoted = json.dumps(version)[1:-1]
    position = text.find(key, listing.searched_to)
    if position < 0 and listing.not_found < _MAX_FAILED_SEARCHES:
        listing.not_found += 1
        position = text.find(key)
    while position >= 0:
        after = position + len(key)
        between = r'\s*,\s*"version"\s*:\s*"' if in_list else r'\s*:\s*(?:\{[^{}]{0,4000}?"version"\s*:\s*)?"?'
        match = re.compile(between).match(text, after)
        if match is not None and text.startswith(quoted, match.end()):
            at = match.end()
            source = listing.source
            listing.searched_to = position
            return source.place(position, at + len(quoted)), source.place(at, at + len(quoted))
        position = text.find(key, after)
    return None, None
