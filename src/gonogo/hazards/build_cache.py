"""Caches what a checkout builds from its own files, until one of them changes.

A wheel has these files built in (``hatch_build.py``). In a checkout each is rebuilt at the first call after a change,
so that none has to be committed or built by hand. If the cache can't be written, each process builds it for itself.
"""

from __future__ import annotations

import contextlib
import os
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

PACKAGE = Path(__file__).parents[1]
CHECKOUT = PACKAGE.parents[1]
"""The checkout that the package is in, if it is in one."""
_MAX_CACHE_DAYS = 30


class _CacheEntry(msgspec.Struct, frozen=True):
    """The contents of a cache file."""

    of: bytes
    """The :func:`fingerprint` of the files it was built from."""
    built: bytes


def load_or_build(name: str, files_fingerprint: bytes, build: Callable[[], bytes]) -> bytes:
    """The cached result for the same files, or else a newly built one. Raises what ``build`` raises."""
    file = _cache_path(name)
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        found = msgspec.msgpack.decode(file.read_bytes(), type=_CacheEntry)
        if found.of == files_fingerprint:
            return found.built
    built = build()
    with contextlib.suppress(OSError):
        _write_cache_file(file, msgspec.msgpack.encode(_CacheEntry(files_fingerprint, built)))
    return built


def toml_values(file: Path) -> bytes:
    """The values of a TOML file of the package as msgpack: from the wheel (``packed``), from the cache, or read now."""
    try:
        return packed(file).read_bytes()
    except FileNotFoundError:
        stat = file.stat()
        state = f"{stat.st_mtime_ns} {stat.st_size}".encode()
        return load_or_build(file.stem, state, lambda: pack_toml(file))


def pack_toml(file: Path) -> bytes:
    """Parse a TOML file, which takes longer than to read a short log, and encode its values as msgpack."""
    from gonogo.hazards.page import parse_toml

    return msgspec.msgpack.encode(parse_toml(file.read_text(encoding="utf-8")))


def packed(file: Path) -> Path:
    """Where a wheel has the values of a TOML file."""
    return file.with_suffix(".msgpack")


def fingerprint(*folders: Path, suffixes: tuple[str, ...] = (".py", ".md", ".toml")) -> bytes:
    """A fingerprint of the folders' state: each file's name, mtime and size; takes a few milliseconds."""
    lines = (line for folder in folders for line in _files_in(str(folder), suffixes))
    return "".join((f"{sys.version_info[:2]}", *lines)).encode("utf-8", "surrogateescape")


def _files_in(folder: str, suffixes: tuple[str, ...]) -> Iterator[str]:
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda one: one.name):
            if entry.name.endswith(suffixes):
                stat = entry.stat()
                yield f"{entry.name}\0{stat.st_mtime_ns}\0{stat.st_size}\n"
            elif "." not in entry.name and entry.name != "__pycache__" and entry.is_dir():
                yield f"{entry.name}/\n"
                yield from _files_in(entry.path, suffixes)


def _cache_path(name: str) -> Path:
    """The path of a cache file: every checkout of gonogo has its own."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "gonogo" / "checkouts" / f"{zlib.crc32(os.fsencode(PACKAGE)):08x}.{name}.msgpack"


def _write_cache_file(file: Path, data: bytes) -> None:
    """Write a cache file, safely against concurrent writers, and delete those not used for a month."""
    import time

    from gonogo.report.atomic import write_atomically

    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(file, data)
    for other in file.parent.glob("*.msgpack"):
        if other.stat().st_mtime < time.time() - _MAX_CACHE_DAYS * 86_400:
            other.unlink()
