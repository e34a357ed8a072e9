"""A package's releases on the user's index, and their archives: limited in number, size and time, and cached.

A wheel for any platform will do, since it is never executed; the smallest file of a release is chosen.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import tempfile
import time
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import InvalidVersion, Version

from gonogo.prepare.packages.installers import pip_settings
from gonogo.prepare.packages.places import cache_folder
from gonogo.prepare.packages.sources import SourceUnavailable, download
from gonogo.trials.upstream.release import BrokenArchive, Release, read_release

MAX_FILE_BYTES = 48 << 20
_MAX_LISTING_BYTES = 64 << 20
_DEFAULT_INDEX_URL = "https://pypi.org/simple"
_LINK_PATTERN = re.compile(r"""<a\s[^>]*?href=["']([^"']+)["'][^>]*>\s*([^<]+?)\s*</a>""", re.IGNORECASE)


class _ReleaseFile(msgspec.Struct):
    """A file of a release, as a package index lists it (PEP 691)."""

    filename: str
    url: str
    hashes: dict[str, str] = {}
    size: int | None = None
    yanked: bool | str = False


class _Listing(msgspec.Struct):
    """A package index's list of a package's files."""

    files: list[_ReleaseFile]


@dataclass
class Archives:
    """Downloads for one answer: at most ``files`` archives and ``bytes`` in total, and none after ``seconds``."""

    files: int = 16
    bytes: int = 192 << 20
    seconds: float = 150.0
    _begun: float = field(default_factory=time.monotonic)
    _listed: dict[str, dict[Version, list[_ReleaseFile]]] = field(default_factory=dict)
    _cache: dict[tuple[str, Version, bool], Release | None] = field(default_factory=dict)

    @property
    def is_spent(self) -> bool:
        """Whether the download budget is exhausted."""
        return self.files <= 0 or self.bytes <= 0 or time.monotonic() - self._begun > self.seconds

    def releases(self, package: str) -> list[Version]:
        """The final releases of a package in a readable format, oldest first. Raises SourceUnavailable."""
        if package not in self._listed:
            self._listed[package] = _files_by_version(_list_files(package), package)
        return sorted(self._listed[package])

    def release(self, package: str, version: Version, *, sdist: bool = False) -> Release | None:
        """A release's sources; ``sdist``: its source archive, which has the changelog. None if unavailable."""
        key = (package, version, sdist)
        if key not in self._cache:
            self._cache[key] = self._fetch_release(package, version, sdist)
        return self._cache[key]

    def _fetch_release(self, package: str, version: Version, sdist: bool) -> Release | None:
        files = [
            one
            for one in self._listed.get(package, {}).get(version, [])
            if not sdist or not one.filename.endswith(".whl")
        ]
        for file in sorted(files, key=lambda one: one.size if one.size is not None else MAX_FILE_BYTES)[:1]:
            if (file.size or 0) > MAX_FILE_BYTES:
                return None
            with contextlib.suppress(SourceUnavailable, BrokenArchive, OSError):
                return read_release(self._download_archive(file), package, version)
        return None

    def _download_archive(self, file: _ReleaseFile) -> Path:
        """The path of the archive in gonogo's cache, downloaded if needed. Raises SourceUnavailable."""
        digest = file.hashes.get("sha256", "")
        name = digest if re.fullmatch(r"[0-9a-f]{64}", digest) else hashlib.sha256(file.url.encode()).hexdigest()
        folder = cache_folder().parent / "upstream"
        suffix = ".whl" if file.filename.endswith(".whl") else ".zip" if file.filename.endswith(".zip") else ".tar.gz"
        place = folder / f"{name}{suffix}"
        if place.is_file():
            return place
        if self.is_spent:
            raise SourceUnavailable("no more may be fetched")
        self.files -= 1
        folder.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=folder)
        os.close(descriptor)
        try:
            download(file.url, Path(temporary), is_index_url=True, most=MAX_FILE_BYTES)
            data = Path(temporary).read_bytes()
            self.bytes -= len(data)
            if digest and hashlib.sha256(data).hexdigest() != digest:
                raise SourceUnavailable("it is not what the index says (sha256)")
            os.replace(temporary, place)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)
        return place


def _files_by_version(files: list[_ReleaseFile], package: str) -> dict[Version, list[_ReleaseFile]]:
    found: dict[Version, list[_ReleaseFile]] = {}
    for file in files:
        version = _version_in_filename(file.filename, package)
        if version is not None and not version.is_prerelease and not file.yanked:
            found.setdefault(version, []).append(file)
    return found


def _version_in_filename(filename: str, package: str) -> Version | None:
    try:
        if filename.endswith(".whl"):
            name, version, _, _ = parse_wheel_filename(filename)
        elif filename.endswith((".tar.gz", ".zip")):
            name, version = parse_sdist_filename(filename)
        else:
            return None
    except (InvalidWheelFilename, InvalidSdistFilename, InvalidVersion):
        return None
    return version if canonicalize_name(name) == package else None


def _index_urls() -> Iterator[str]:
    settings = pip_settings()
    first = os.environ.get("UV_DEFAULT_INDEX") or os.environ.get("UV_INDEX_URL") or settings.get("index-url")
    yield first or _DEFAULT_INDEX_URL
    yield from (settings.get("extra-index-url") or "").split()


def _list_files(package: str) -> list[_ReleaseFile]:
    """All files of a package, from the first index that has it. Raises SourceUnavailable."""
    why = ""
    for index in _index_urls():
        address = f"{index.rstrip('/')}/{canonicalize_name(package)}/"
        if urllib.parse.urlsplit(address).scheme not in ("http", "https"):
            continue
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder, "listing")
            try:
                download(address, place, is_index_url=True, most=_MAX_LISTING_BYTES, accept=_ACCEPT_HEADER)
            except SourceUnavailable as error:
                why = why or str(error)
                continue
            if files := _files_in(place.read_bytes(), address):
                return files
    raise SourceUnavailable(why or f"no index lists {package}")


_ACCEPT_HEADER = "application/vnd.pypi.simple.v1+json, text/html;q=0.1"


def _files_in(data: bytes, address: str) -> list[_ReleaseFile]:
    """The files in an index page, as JSON (PEP 691) or HTML (PEP 503)."""
    try:
        files = msgspec.json.decode(data, type=_Listing).files
    except (msgspec.MsgspecError, UnicodeError, json.JSONDecodeError):
        files = []
        for href, filename in _LINK_PATTERN.findall(data.decode("utf-8", "replace")):
            url, _, fragment = urllib.parse.urljoin(address, href).partition("#")
            digest = re.search(r"sha256=([0-9a-f]{64})", fragment)
            files.append(_ReleaseFile(filename, url, {"sha256": digest[1]} if digest else {}))
    for file in files:
        file.url = urllib.parse.urljoin(address, file.url)
    return files
