"""Lock files of Poetry, uv, PDM and PEP 751: ``[[package]]`` tables with a name and a version.

Parsed line by line, so that a truncated or badly merged lock file can be used. A lock file is not edited by hand (its
hashes would no longer match), so versions in it can't be replaced.
"""

from __future__ import annotations

import re

from gonogo.evidence.environment.versions.listing import (
    NAME,
    PackageListing,
    decode_latin1_as_utf8,
    exact_specifier,
    latin1_text,
    repository_address,
)
from gonogo.evidence.source_file import Place

_NAME_PATTERN = re.compile(rf"^name[ \t]*=[ \t]*[\"']({NAME})[\"']", re.MULTILINE)
_VERSION_PATTERN = re.compile(r"^version[ \t]*=[ \t]*[\"']([^\"'\n]{1,100})[\"']", re.MULTILINE)
_OWN_PROJECT_PATTERN = re.compile(r"^source[ \t]*=[ \t]*\{[ \t]*(?:virtual|editable)\b", re.MULTILINE)


def read_lock(listing: PackageListing) -> None:
    """Add all packages of the listing's lock file (uv, Poetry, PDM, PEP 751)."""
    text = latin1_text(listing.source)
    found: dict[str, tuple[set[str], Place, str]] = {}
    for block in re.finditer(r"^\[\[packages?\]\][ \t]*\r?\n((?:(?!\[).*(?:\n|\Z))*)", text, re.MULTILINE):
        name, version = _NAME_PATTERN.search(block[1]), _VERSION_PATTERN.search(block[1])
        if name is None or _OWN_PROJECT_PATTERN.search(block[1]):
            continue
        address = _source_url(text, block)
        start = block.start(1)
        end = start + (version.end(1) if version else name.end(1))
        place = listing.source.place(start + name.start(1), end)
        found.setdefault(name[1], (set(), place, address))[0].add(version[1] if version else "")
    for name_, (versions, place, address) in found.items():
        # Several versions are for different platforms or Pythons; the lock file alone doesn't tell which one applies.
        listing.add_package(
            name_, exact_specifier(versions.pop()) if len(versions) == 1 else "", place, address=address
        )
    listing.complete = bool(found)


_SOURCE_TABLE_PATTERN = re.compile(
    r"^\[(?:package\.source|packages\.(?:vcs|archive|directory))\][ \t]*\r?\n((?:(?!\[).*(?:\n|\Z))*)", re.MULTILINE
)
_INLINE_SOURCE_PATTERN = re.compile(r"^(?:source|vcs|archive|directory)[ \t]*=[ \t]*\{([^}\n]*)\}", re.MULTILINE)
_PDM_SOURCE_PATTERN = re.compile(r"^(?:git|url|path)[ \t]*=.*$(?:\n^(?:ref|revision)[ \t]*=.*$)*", re.MULTILINE)
_KEY_VALUE_PATTERN = re.compile(r"(?:^|[,\s])([\w-]+)[ \t]*=[ \t]*[\"']([^\"'\n]{1,500})[\"']")


def _source_url(text: str, block: re.Match[str]) -> str:
    """The source URL of a package that is not from an index, as written by uv, Poetry, PDM or PEP 751."""
    end = text.find("\n[[", block.end() - 1)
    tables = _SOURCE_TABLE_PATTERN.findall(text, block.end(), end + 1 if end >= 0 else len(text))
    of_pdm = _PDM_SOURCE_PATTERN.search(block[1])
    for written in (*tables, *_INLINE_SOURCE_PATTERN.findall(block[1]), *([of_pdm[0]] if of_pdm is not None else [])):
        keys = dict(_KEY_VALUE_PATTERN.findall(written))
        kind = keys.get("type", "")
        if kind in ("legacy", "pypi") or "registry" in keys:
            continue
        commit = next((keys[key] for key in ("commit-id", "resolved_reference", "revision") if key in keys), "")
        git = keys.get("git", "")
        where = git or next((keys[key] for key in ("url", "path", "directory") if key in keys), "")
        if where:
            return decode_latin1_as_utf8(repository_address(where, commit) if git or commit or kind == "git" else where)
    return ""
