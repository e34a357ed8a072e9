"""Requirements files and the output of ``pip freeze``: one requirement per line, with included files."""

from __future__ import annotations

import re
from functools import lru_cache

from gonogo.evidence.environment.environment import Package
from gonogo.evidence.environment.package_name import canonical_package_name
from gonogo.evidence.environment.versions.listing import (
    NAME,
    PackageListing,
    cuda_version_of_tag,
    decode_latin1_as_utf8,
    exact_specifier,
    latin1_text,
    resolve_included_path,
    validated_specifier,
)
from gonogo.evidence.field import Field
from gonogo.evidence.source_file import SourceFile
from gonogo.finding import Text, UserError, translated

_MAX_DEPTH = 10
_MAX_LINE_LENGTH = 20_000
_MAX_LINES = 10_000
"""Maximum number of lines of all files together, in case files include each other repeatedly."""
_TOO_LONG = translated(
    "{where}: the file was read only up to this line, since gonogo reads version lists up to {limit} lines"
)
_MAX_UNREADABLE_LINES = 100
"""Maximum number of reported lines; a file with more is not a requirements file."""
_NOT_A_REQUIREMENT = translated(
    "{where}: {line!r} is not a requirement: give a requirements file, a pip freeze, or JSON"
)
_CANNOT_INCLUDE = translated(
    "{where}: can't read {path}: it does not exist, or is outside this file's folder and the current folder"
)
_INCLUDES_TOO_DEEP = translated(
    "{where}: {line!r} was not followed, since the files already include each other {depth} levels deep"
)
_REQUIREMENT_PATTERN = re.compile(
    rf"({NAME})[ \t]*(\[[\w\s,.-]{{0,200}}\])?[ \t]*(\([^()]{{0,300}}\)|[~=!<>][^;@#]{{0,300}})?"
)
_WHEEL_NAME_PATTERN = (
    rf"(?:^|[/\\=])({NAME}?)-(\d[\w.!+%]{{0,80}}?)(?:-\d\w{{0,20}})?-[\w.]+-[\w.]+-[\w.]+\.whl(?:[#?].*)?$"
)
_ARCHIVE_NAME_PATTERN = rf"(?:^|/)({NAME}?)-(\d[\w.!+]{{0,80}}?)\.(?:tar\.gz|tar\.bz2|zip)(?:[#?].*)?$"
_CONDA_BUILD_PATH_PATTERN = re.compile(
    r"file:///(?:\S*/)?(?:feedstock_root|croot|conda-bld|ci_py\d+|build/80754af9|ktietz/\w+/ci)"
)
"""A path in the output of ``pip freeze`` for conda packages: the folder of their build, which exists nowhere else."""
_GITHUB_ARCHIVE = rf"://[^/\s]+/[^/\s]+/({NAME})/(?:archive|zipball|tarball|releases/download)/"
_MIN_FROZEN_PACKAGES = 20
"""From this number of pinned lines on, a sorted file counts as a complete list of installed packages."""


def read_requirements(listing: PackageListing) -> None:
    """Add all requirements of a requirements file."""
    _read_file(listing, listing.source, depth=0, constraint=False, seen={listing.source.path})
    listing.complete = _is_pip_freeze_output(listing)


def _is_pip_freeze_output(listing: PackageListing) -> bool:
    """Whether the file lists all installed packages: many exact versions in pip's order, and nothing else."""
    names = [name for name, package in listing.packages.items() if not package.specifier.startswith("~")]
    exact_ones = [p for p in listing.packages.values() if p.version_text or not p.written]
    pinned = sum(1 for p in listing.packages.values() if p.version_text)
    return pinned >= _MIN_FROZEN_PACKAGES and len(exact_ones) == len(listing.packages) and names == sorted(names)


def _read_file(listing: PackageListing, source: SourceFile, *, depth: int, constraint: bool, seen: set[str]) -> None:
    text = re.sub(r"\\(\r?\n)", lambda match: " " * len(match[0]), latin1_text(source))
    position = 0
    for raw in re.split(r"(?<=\n)", text):
        start, position = position, position + len(raw)
        if len(raw) > _MAX_LINE_LENGTH:
            continue
        if raw.isspace() or not raw:
            continue
        listing.lines += 1
        if listing.lines > _MAX_LINES:
            where = f"{source.path}:{source.line_of(start)}"
            listing.source.gap = listing.source.gap or _TOO_LONG.format(where=where, limit=_MAX_LINES)
            return
        line = re.sub(r"(^|\s)#.*", "", raw.rstrip("\r\n"))
        start += len(line) - len(line.lstrip())
        line = line.strip()
        if not line:
            continue
        include = re.match(r"(-r|-c|--requirement|--constraint)(?:\s*=\s*|\s+|(?<=-[rc]))(.+)$", line)
        if include:
            _include_file(listing, source, line, start, include, depth=depth, constraint=constraint, seen=seen)
        elif INDEX_OPTION_PATTERN.match(line):
            listing.index_lines.append(source.place(start, start + len(line)))
            read_index_option(listing, line)
        elif (
            not read_requirement(listing, source, line, start, constraint=constraint)
            and not line.startswith("--")
            and len(listing.unread) < _MAX_UNREADABLE_LINES
        ):
            place = source.place(start, start + len(line))
            where = f"{source.path}:{place.line}"
            listing.record_unparsed(
                place, _NOT_A_REQUIREMENT.format(where=where, line=decode_latin1_as_utf8(line)[:120].replace("\n", " "))
            )


def _include_file(
    listing: PackageListing,
    source: SourceFile,
    line: str,
    start: int,
    include_match: re.Match[str],
    *,
    depth: int,
    constraint: bool,
    seen: set[str],
) -> None:
    place = source.place(start, start + len(line))
    where = f"{source.path}:{place.line}"
    name = decode_latin1_as_utf8(include_match[2].strip("\"' "))
    path = resolve_included_path(source, listing.source, name)
    if path is None:
        listing.record_unparsed(place, _CANNOT_INCLUDE.format(where=where, path=name[:200]))
        return
    if depth >= _MAX_DEPTH:
        listing.record_unparsed(
            place, _INCLUDES_TOO_DEEP.format(where=where, line=decode_latin1_as_utf8(line)[:120], depth=_MAX_DEPTH)
        )
        return
    if path in seen:
        return
    seen.add(path)
    try:
        included = SourceFile.read(path)
    except UserError as error:
        listing.record_unparsed(place, error.text)
        return
    constraint = constraint or include_match[1] in ("-c", "--constraint")
    _read_file(listing, included, depth=depth + 1, constraint=constraint, seen=seen)


INDEX_OPTION_PATTERN = re.compile(
    r"(?:-i|-f|--(?:index-url|extra-index-url|pypi-url|find-links|trusted-host|no-index|pre|no-binary|only-binary"
    r"|prefer-binary))(?![\w-])|-[if](?=\S)"
)
"""Options of a requirements file that select indexes or the files to take from them."""


def read_index_option(listing: PackageListing, words: str) -> None:
    """Read an index option: PyTorch's own index determines the CUDA version of its torch."""
    index = re.search(r"download\.pytorch\.org/whl/(?:nightly/|test/)?(cu\d+|cpu|rocm[\d.]+)", words)
    if index is not None:
        listing.pypi = False
        cuda = cuda_version_of_tag(index[1])
        if cuda is not None:
            listing.facts["cuda"] = Field(cuda, reason=Text(index[0], index[0]))
    elif re.search(r"(-i|--index-url)\b", words):
        listing.pypi = "pypi" in words


_EDITABLE_PATTERN = re.compile(r"(?:-e|--editable)(?:\s+|=)")
_OPTION_PATTERN = re.compile(r"\s--?[a-z]")
_ADDRESS_PATTERN = re.compile(rf"({NAME})\s*(?:\[([^\]]{{0,200}})\])?\s*@\s*(\S+)")
_PATH_PATTERN = re.compile(r"(?:git|hg|svn|bzr)\+|[a-z]+://|\.{0,2}/|[\w./-]+\.(?:whl|tar\.gz|zip)$")


def read_requirement(
    listing: PackageListing,
    source: SourceFile,
    text: str,
    start: int,
    *,
    notation: str = "requirement",
    constraint: bool = False,
    replace: bool = False,
) -> bool:
    """Add one requirement whose text starts at the byte ``start``; False if it is not a requirement."""
    editable = _EDITABLE_PATTERN.match(text)
    if editable:
        start, text = start + editable.end(), text[editable.end() :]
    option = _OPTION_PATTERN.search(text)
    hashed = option is not None and "--hash" in text
    if option is not None:
        text = text[: option.start()].rstrip()
    place = source.place(start, start + len(text))
    url = _ADDRESS_PATTERN.match(text) if "@" in text else None
    if url is not None:
        extras = re.sub(r"\s", "", url[2] or "")
        address = "" if _CONDA_BUILD_PATH_PATTERN.match(url[3]) else decode_latin1_as_utf8(url[3])
        version = _version_of_url(url[3], url[1])
        listing.add_package(url[1], version, place, replace=replace, extras=extras, address=address)
        return True
    if editable or _PATH_PATTERN.match(text):
        named = _package_of_url(text)
        if named is not None:
            listing.add_package(
                named[0], named[1], place, replace=replace, address=decode_latin1_as_utf8(text.split(" ;")[0].strip())
            )
        return True
    match = _REQUIREMENT_PATTERN.match(text)
    if match is None:
        return False
    rest = text[match.end() :].strip()
    if rest and not rest.startswith(";"):
        return False
    if rest and not _marker_applies(rest[1:].strip()):
        return True
    specifier = (match[3] or "").strip()
    end = match.start(3) + len(match[3].rstrip()) if match[3] else (match.end(2) if match[2] else match.end(1))
    begin = match.start(3) if match[3] else end
    bare = validated_specifier(specifier.strip("() "))
    if specifier and not bare:
        return False
    at = source.place(start + begin, start + end)
    how = "" if hashed else notation
    if constraint:
        where = f"{source.path}:{place.line}"
        listing.constraints.append(Package(canonical_package_name(match[1]), bare, place, Text(where, where), how, at))
    else:
        shown = source.place(start, start + max(end, match.end(1)))
        extras = re.sub(r"[\s\[\]]", "", match[2] or "")
        listing.add_package(match[1], bare, shown, notation=how, specifier_place=at, replace=replace, extras=extras)
    return True


def _version_of_url(url: str, name: str) -> str:
    found = _package_of_url(url)
    return found[1] if found is not None and canonical_package_name(found[0]) == canonical_package_name(name) else ""


def _package_of_url(url: str) -> tuple[str, str] | None:
    """The name and specifier in a path or URL: a wheel's from its file name, a repository's from its last folder."""
    url = url[:2000]
    wheel = re.search(_WHEEL_NAME_PATTERN, url) or re.search(_ARCHIVE_NAME_PATTERN, url)
    if wheel is not None:
        return wheel[1], exact_specifier(wheel[2].replace("%2B", "+").replace("%2b", "+"))
    egg = re.search(rf"[#&]egg=({NAME})", url)
    if egg is not None:
        return egg[1], ""
    of_github = re.search(_GITHUB_ARCHIVE, url)
    if of_github is not None:
        return of_github[1], ""
    repository = re.search(rf"(?:://|git@)[^\s#?]*[/:]({NAME})(?:\.git)?(?:@([\w./-]+))?(?:[#?].*)?$", url)
    if repository is None:
        return None
    # A tag such as v0.14.2 is a version; a branch or a commit is not.
    name = re.sub(r"\.git$", "", repository[1])
    tag = re.fullmatch(r"v?(\d+(?:\.\d+){1,3}(?:\.post\d+)?)", repository[2] or "")
    return name, exact_specifier(tag[1]) if tag else ""


@lru_cache(maxsize=1024)
def _marker_applies(marker: str) -> bool:
    """Whether an environment marker applies to Linux with Python 3.11; True if it is invalid."""
    from packaging.markers import InvalidMarker, Marker, UndefinedComparison, UndefinedEnvironmentName

    surroundings = {
        "implementation_name": "cpython",
        "implementation_version": "3.11.9",
        "os_name": "posix",
        "platform_machine": "x86_64",
        "platform_python_implementation": "CPython",
        "platform_release": "5.15.0",
        "platform_system": "Linux",
        "platform_version": "",
        "python_full_version": "3.11.9",
        "python_version": "3.11",
        "sys_platform": "linux",
        "extra": "",
    }
    try:
        return Marker(marker).evaluate(surroundings)
    except (InvalidMarker, UndefinedComparison, UndefinedEnvironmentName, RecursionError, ValueError):
        return True
