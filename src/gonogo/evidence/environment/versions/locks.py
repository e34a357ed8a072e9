"""Lock files of Poetry, uv, PDM and PEP 751: blocks of ``[[package]]`` with a name and a version.

Read line by line: a lock that is cut off or merged badly still tells what it tells. A lock is not edited by hand (its
hashes would be others), so versions in it can't be replaced.
"""

from __future__ import annotations

import re

from gonogo.evidence.document.source_file import Place
from gonogo.evidence.environment.versions.listing import NAME, Listing, bytes_as_text, exact


def read_lock(listing: Listing) -> None:
    """All packages of the listing's file."""
    text = bytes_as_text(listing.source)
    found: dict[str, tuple[set[str], Place]] = {}
    for block in re.finditer(r"^\[\[packages?\]\][ \t]*\r?\n((?:(?!\[).*(?:\n|\Z))*)", text, re.MULTILINE):
        name = re.search(rf"^name[ \t]*=[ \t]*[\"']({NAME})[\"']", block[1], re.MULTILINE)
        version = re.search(r"^version[ \t]*=[ \t]*[\"']([^\"'\n]{1,100})[\"']", block[1], re.MULTILINE)
        if name is None or re.search(r"^source[ \t]*=[ \t]*\{[ \t]*(?:virtual|editable)\b", block[1], re.MULTILINE):
            continue
        start = block.start(1)
        end = start + (version.end(1) if version else name.end(1))
        place = listing.source.place(start + name.start(1), end)
        found.setdefault(name[1], (set(), place))[0].add(version[1] if version else "")
    for name_, (versions, place) in found.items():
        # Several versions: one for each platform or Python, and which it will be can't be told from the lock alone.
        listing.add(name_, exact(versions.pop()) if len(versions) == 1 else "", place)
    listing.complete = bool(found)
