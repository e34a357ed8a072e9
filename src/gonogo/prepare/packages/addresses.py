"""Packages that a project takes from a URL (a repository, an archive): fetched from there, or missing.

A package of the index that has the same name as the last part of a URL is a different package, and is never used
instead.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

import msgspec
from packaging.utils import canonicalize_name

from gonogo.finding import Text, translated
from gonogo.prepare.packages.building import BuildFailed, BuiltWheel, build_wheel
from gonogo.prepare.packages.places import ReportProgress
from gonogo.prepare.packages.sources import (
    SourceUnavailable,
    clone_repository,
    download,
    download_archive,
    url_without_credentials,
)

_WHEEL_NAME_PATTERN = re.compile(r"([\w.]+)-([\w.!+%]+)(?:-\d\w*)?-[\w.]+-[\w.]+-[\w.]+\.whl")
_ARCHIVE_PATTERN = re.compile(r"\.(?:tar\.gz|tgz|tar\.bz2|tar\.xz|zip)$|/(?:archive|zipball|tarball)/")

PACKAGE_NOT_INSTALLED = translated(
    "not installed in this environment; code that imports it can't be judged ({why}). --with {name} "
    "installs the package of that name from the index instead"
)
POSSIBLY_FROM_OTHER_URL = translated(
    "rehearsed with the installed {name} {version}, which may not be from that address"
)


def describe_package_url(name: str, address: str) -> Text:
    """A package with its address, as reports call it."""
    return Text(f"{name} from {url_without_credentials(address)}", f"{name}（来自 {url_without_credentials(address)}）")


@dataclass
class FetchedPackages:
    """The result of fetching a project's URLs."""

    lines: dict[str, str] = field(default_factory=dict)
    """Requirements for uv, by canonical name: local wheels."""
    missing: dict[str, str] = field(default_factory=dict)
    """The reason for each missing package, by its name in the project's file."""
    built: dict[str, str] = field(default_factory=dict)
    """The versions of packages that were built here."""


def fetch_from_urls(
    addresses: Mapping[str, str],
    extras: Mapping[str, str],
    folder: Path,
    report_progress: ReportProgress,
    *,
    unconfined: bool,
) -> FetchedPackages:
    """Fetch each URL into a new folder, and build what isn't a wheel."""
    folder.mkdir()
    found = FetchedPackages()
    for number, (name, address) in enumerate(addresses.items()):
        try:
            one = _build_wheel_from_url(name, address, folder / str(number), report_progress, unconfined=unconfined)
        except SourceUnavailable as error:
            found.missing[name] = str(error)
            continue
        except BuildFailed as error:
            found.missing[name] = f"its build failed: {error}"
            continue
        found.lines[one.name] = f"{one.name}{extras.get(name, '')} @ {one.wheel.absolute().as_uri()}"
        if one.wheel.parent != folder / str(number):
            found.built[one.name] = one.version
    return found


def _build_wheel_from_url(
    name: str, address: str, folder: Path, report_progress: ReportProgress, *, unconfined: bool
) -> BuiltWheel:
    if address.startswith("git+"):
        return build_wheel(
            clone_repository(address, folder, report_progress), name, report_progress, unconfined=unconfined
        )
    path, _, fragment = address.partition("#")
    file_name = path.partition("?")[0].rpartition("/")[2].replace("%2B", "+").replace("%2b", "+")
    if not re.match(r"https?://", address):
        raise SourceUnavailable("only addresses of git+https, git+ssh, https and http are fetched")
    if (wheel := _WHEEL_NAME_PATTERN.fullmatch(file_name)) is not None:
        folder.mkdir()
        download(path, folder / file_name, is_index_url=False)
        stated = re.search(r"(?:^|&)sha256=([0-9a-f]{64})\b", fragment)
        if stated is not None and hashlib.sha256((folder / file_name).read_bytes()).hexdigest() != stated[1]:
            raise SourceUnavailable("it is not what its address says (sha256)")
        return BuiltWheel(folder / file_name, canonicalize_name(wheel[1]), wheel[2])
    if _ARCHIVE_PATTERN.search(path.partition("?")[0]):
        return build_wheel(download_archive(address, folder), name, report_progress, unconfined=unconfined)
    raise SourceUnavailable("the address names no repository, archive or wheel")


def is_installed_from(name: str, address: str) -> bool:
    """Whether this Python's package of that name was installed from that address (PEP 610)."""
    try:
        direct_url = msgspec.json.decode(metadata.distribution(name).read_text("direct_url.json") or "{}")
    except (metadata.PackageNotFoundError, msgspec.DecodeError, UnicodeDecodeError):
        return False
    url = direct_url.get("url") if isinstance(direct_url, dict) else None
    return isinstance(url, str) and _normalize_address(url) == _normalize_address(address)


def _normalize_address(address: str) -> str:
    """A URL without its revision and optional parts, for comparison."""
    bare = url_without_credentials(address).removeprefix("git+").partition("#")[0]
    scheme, _, rest = bare.partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}://{host}{slash}{path.partition('@')[0].removesuffix('.git')}".lower()
