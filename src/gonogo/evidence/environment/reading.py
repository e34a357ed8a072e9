"""Read an environment from a file of any supported format."""

from __future__ import annotations

import os
import re
from pathlib import Path

from gonogo.evidence.environment.environment import Environment
from gonogo.evidence.environment.versions.conda import read_conda
from gonogo.evidence.environment.versions.dockerfile import read_dockerfile
from gonogo.evidence.environment.versions.json_listing import read_json
from gonogo.evidence.environment.versions.listing import PackageListing
from gonogo.evidence.environment.versions.locks import read_lock
from gonogo.evidence.environment.versions.pasted import MARKS, read_pasted_report
from gonogo.evidence.environment.versions.pyproject import read_pyproject
from gonogo.evidence.environment.versions.requirements import read_requirements
from gonogo.evidence.environment.versions.setup_files import read_setup_cfg, read_setup_py, read_setup_script
from gonogo.evidence.source_file import SourceFile
from gonogo.finding import UserError, translated

_NO_VERSIONS_IN_FILE = translated(
    "{path} contains no package versions: give requirements, a pip freeze, a lock file, a Dockerfile, "
    "JSON, or the output of `gonogo env`"
)
_CANNOT_READ = translated("can't read {path}: {why}")
_TOO_LARGE = translated(
    "the file has {size} KiB, and gonogo reads version lists only up to {limit} KiB: give the output of pip freeze"
)
_MAX_HEAD_BYTES = 1 << 18
_SETUP_READERS = {"setup.py": read_setup_py, "setup.cfg": read_setup_cfg, "setup-script": read_setup_script}
_MAX_BYTES = {"lock": 8 << 20, "pyproject": 256 << 10}
"""Size limits; lock files contain the hashes of all wheels, the others are usually a few kilobytes."""
_DEFAULT_MAX_BYTES = 1 << 20


def read_environment(source: SourceFile) -> Environment:
    """Read a file of any kind: requirements, a lock file, JSON, a Dockerfile, a pasted report …

    Never raises: a file without versions gives an environment without packages.
    """
    kind = _file_format(source)
    listing = PackageListing(source)
    limit = _MAX_BYTES.get(kind, _DEFAULT_MAX_BYTES)
    if len(source.data) > limit:
        source.gap = source.gap or _TOO_LARGE.format(size=len(source.data) >> 10, limit=limit >> 10)
        return listing.to_environment()
    if kind == "json":
        return read_json(listing)
    if kind == "lock":
        read_lock(listing)
    elif kind == "pyproject":
        read_pyproject(listing)
    elif kind == "conda":
        read_conda(listing)
    elif kind == "dockerfile":
        read_dockerfile(listing)
    elif kind in _SETUP_READERS:
        _SETUP_READERS[kind](listing)
    elif kind == "report":
        read_pasted_report(listing)
    else:
        read_requirements(listing)
    return listing.to_environment()


def _file_format(source: SourceFile) -> str:
    """The format of a file, by its name or its beginning."""
    name = os.path.basename(source.path).lower()
    head = source.data[source.start : source.start + _MAX_HEAD_BYTES]
    if name in ("poetry.lock", "uv.lock", "pdm.lock", "pylock.toml"):
        return "lock"
    if name in ("setup.py", "setup.cfg"):
        return name
    if name.endswith((".sh", ".bash")):
        return "setup-script"
    if name in ("pyproject.toml", "pipfile"):
        return "pyproject"
    if re.search(r"^(?:docker|container)file(?:[._-].*)?$|\.dockerfile$", name):
        return "dockerfile"
    start = head.lstrip()
    if start[:1] == b"{" or (
        start[:1] == b"[" and re.match(rb"\[\s*[\{\[\]\"]", start) and b"[[package" not in start[:99]
    ):
        return "json"
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


def read_environment_file(path: Path) -> Environment:
    """The environment in a file. Raises UserError if it can't be read or contains no versions."""
    source = SourceFile.read(path)
    environment = read_environment(source)
    if source.gap is not None:
        raise UserError(_CANNOT_READ.format(path=path, why=source.gap))
    nothing = Environment(sources=environment.sources, unread=environment.unread, index_lines=environment.index_lines)
    if not environment.packages and environment == nothing:
        raise UserError(_NO_VERSIONS_IN_FILE.format(path=path))
    return environment
