"""Files that tell versions, one kind a module, and which of them a file is."""

from __future__ import annotations

import os
import re

from gonogo.evidence.environment import Environment
from gonogo.evidence.source_file import SourceFile
from gonogo.evidence.versions.listing import Listing

__all__ = ["kind_of", "read"]


def read(source: SourceFile) -> Environment:
    """What a file tells of an environment; one that tells nothing gives an environment without packages."""
    kind = kind_of(source)
    listing = Listing(source)
    if kind == "json":
        from gonogo.evidence.versions.json_listing import read_json

        return read_json(listing)
    from gonogo.evidence.versions.requirements import read_requirements

    read_requirements(listing)
    return listing.environment()


def kind_of(source: SourceFile) -> str:
    """The kind of a file, by its name and by how it begins."""
    name = os.path.basename(source.path).lower()
    head = source.data[source.start : source.start + (1 << 16)].lstrip()
    if head[:1] in (b"{", b"[") and not re.match(rb"\[[\w\"'. -]+\]|\[\[", head):
        return "json"
    del name
    return "requirements"
