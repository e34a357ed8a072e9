"""Files that tell versions, one kind a module, and which of them a file is."""

from __future__ import annotations

import os
import re

from gonogo.evidence.document.source_file import SourceFile
from gonogo.evidence.environment.environment import Environment
from gonogo.evidence.environment.versions.listing import Listing

__all__ = ["kind_of", "read"]

_HEAD = 1 << 18


def read(source: SourceFile) -> Environment:
    """What a file tells of an environment; one that tells nothing gives an environment without packages."""
    kind = kind_of(source)
    listing = Listing(source)
    if kind == "json":
        from gonogo.evidence.environment.versions.json_listing import read_json

        return read_json(listing)
    if kind == "lock":
        from gonogo.evidence.environment.versions.locks import read_lock

        read_lock(listing)
    elif kind == "pyproject":
        from gonogo.evidence.environment.versions.pyproject import read_pyproject

        read_pyproject(listing)
    elif kind == "conda":
        from gonogo.evidence.environment.versions.conda import read_conda

        read_conda(listing)
    elif kind == "dockerfile":
        from gonogo.evidence.environment.versions.dockerfile import read_dockerfile

        read_dockerfile(listing)
    elif kind == "report":
        from gonogo.evidence.environment.versions.pasted import read_pasted

        read_pasted(listing)
    else:
        from gonogo.evidence.environment.versions.requirements import read_requirements

        read_requirements(listing)
    return listing.environment()


def kind_of(source: SourceFile) -> str:
    """The kind of a file, by its name or by how it begins."""
    name = os.path.basename(source.path).lower()
    head = source.data[source.start : source.start + _HEAD]
    if name in ("poetry.lock", "uv.lock", "pdm.lock", "pylock.toml"):
        return "lock"
    if name in ("pyproject.toml", "pipfile"):
        return "pyproject"
    if re.search(r"^(?:docker|container)file(?:[._-].*)?$|\.dockerfile$", name):
        return "dockerfile"
    start = head.lstrip()
    if start[:1] == b"{" or (
        start[:1] == b"[" and re.match(rb"\[\s*[\{\[\]\"]", start) and b"[[package" not in start[:99]
    ):
        return "json"
    from gonogo.evidence.environment.versions.pasted import MARKS

    if any(mark in head for mark in MARKS):
        return "report"
    if re.search(rb"(?m)^\[\[packages?\]\]", head):
        return "lock"
    if re.search(rb"(?m)^\[(?:project|build-system|tool\.[\w.-]+|packages|dependency-groups)\]", head):
        return "pyproject"
    if re.search(rb"(?im)^[ \t]*FROM[ \t]+\S", head) and re.search(
        rb"(?m)^[ \t]*(?:RUN|ENV|COPY|WORKDIR|CMD)[ \t]", head
    ):
        return "dockerfile"
    if re.search(rb"(?m)^dependencies[ \t]*:", head) or name.endswith((".yml", ".yaml")):
        return "conda"
    return "requirements"
