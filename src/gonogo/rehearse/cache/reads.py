"""What a rehearsal read, and whether it is still so: each path with what stood there."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import stat as modes
import sysconfig
from collections.abc import Iterator, Mapping
from typing import Literal

import msgspec

from gonogo.rehearse.path_access import PathAccess, state_of

_MAX_HASHED = 256 << 20
_MAX_COMPARED = 16 << 20
_BLOCK = 1 << 20
_LIBRARIES = (
    *(f"{sysconfig.get_path(name)}/" for name in ("purelib", "platlib", "stdlib")),
    *("/usr/lib/", "/usr/lib64/", "/usr/libexec/", "/usr/share/", "/usr/bin/", "/usr/sbin/", "/usr/local/lib/"),
    *("/lib/", "/lib64/", "/bin/", "/sbin/", "/usr/local/cuda/"),
)
_MODULE_SUFFIXES = (".py", ".pyc", ".so", ".egg-info")
_UNINTERESTING = frozenset({"__pycache__"})

Kind = Literal["absent", "file", "folder", "other"]


class Changed(Exception):
    """A file changed while it was read: what the rehearsal saw isn't known."""


class Read(msgspec.Struct, frozen=True, array_like=True):
    """A path that was asked for, and what stood there."""

    path: str
    kind: Kind
    size: int = 0
    mtime: int = 0
    """In nanoseconds."""
    identity: tuple[int, int] = (0, 0)
    """Inode, and when it was last changed in any way: while these stand, the contents do."""
    digest: str = ""
    """Of a file's contents; of a folder's names. Empty for a file that is told by its size and time, and for a folder
    that wasn't listed."""
    modules: bool = False
    """Whether the folder was listed for modules only."""


def reads_of(asked: Mapping[str, PathAccess], own: tuple[str, ...]) -> tuple[Read, ...]:
    """What was asked for, with the contents as they are now.

    ``own``: folders that are left out, since the key speaks for them. Raises Changed.
    """
    found: dict[str, Read] = {}
    for path, one in list(asked.items()):
        if path.startswith(own):
            continue
        path, one = _source_of(path, one)
        if path not in found or one.opened or one.listed or one.modules:
            found[path] = _read(path, one)
    return tuple(found.values())


def _source_of(path: str, asked: PathAccess) -> tuple[str, PathAccess]:
    """The source, where Python read what it had compiled of it before."""
    if asked.opened and path.endswith(".pyc") and "/__pycache__/" in path:
        try:
            source = importlib.util.source_from_cache(path)
        except ValueError:
            return path, asked
        state = state_of(source)
        if state is not None:
            of_source = PathAccess(state)
            of_source.opened = True
            return source, of_source
    return path, asked


def _read(path: str, asked: PathAccess) -> Read:
    state = asked.state
    if state is None:
        if state_of(path) is not None and not asked.opened:
            raise Changed(path)
        return Read(path, "absent")
    if modes.S_ISREG(state.st_mode):
        return _read_file(path, asked, state)
    if modes.S_ISDIR(state.st_mode):
        if asked.listed or asked.opened:
            now = state_of(path)
            if now is None or now.st_mtime_ns != state.st_mtime_ns:
                raise Changed(path)
            return Read(path, "folder", digest=names_digest(path, modules=False))
        if asked.modules:
            return Read(path, "folder", digest=names_digest(path, modules=True), modules=True)
        return Read(path, "folder")
    return Read(path, "other")


def _read_file(path: str, asked: PathAccess, state: os.stat_result) -> Read:
    now = state_of(path)
    if now is None or _signature(now) != _signature(state):
        raise Changed(path)
    hashed = not _is_library(path) and state.st_size <= (_MAX_HASHED if asked.opened else _MAX_COMPARED)
    digest = file_digest(path) if hashed else ""
    return Read(path, "file", *_signature(state), digest)


def _is_library(path: str) -> bool:
    return path.startswith(_LIBRARIES) or "/site-packages/" in path or "/dist-packages/" in path


def _signature(state: os.stat_result) -> tuple[int, int, tuple[int, int]]:
    return state.st_size, state.st_mtime_ns, (state.st_ino, state.st_ctime_ns)


def file_digest(path: str) -> str:
    """Of a file's contents; empty where it can't be read."""
    digest = hashlib.sha256()
    try:
        with open(path, "rb") as file:
            while block := file.read(_BLOCK):
                digest.update(block)
    except OSError:
        return ""
    return digest.hexdigest()


def names_digest(path: str, *, modules: bool) -> str:
    """Of what lies in a folder, by name and kind; ``modules``: of what can be imported. Empty if unreadable."""
    try:
        return hashlib.sha256("\0".join(sorted(_names(path, modules))).encode("utf-8", "surrogateescape")).hexdigest()
    except OSError:
        return ""


def _names(path: str, modules: bool) -> Iterator[str]:
    with os.scandir(path) as entries:
        for entry in entries:
            folder = entry.is_dir()
            wanted = not modules or folder or entry.name.endswith(_MODULE_SUFFIXES)
            if wanted and entry.name not in _UNINTERESTING:
                yield f"{entry.name}/" if folder else entry.name


class ReadChecker:
    """Whether what was read is still so; each path is looked at once, however many rehearsals read it."""

    def __init__(self) -> None:
        self._states: dict[str, os.stat_result | None] = {}
        self._digests: dict[tuple[str, bool], str] = {}

    def is_same(self, read: Read) -> bool:
        """Whether the path shows what it showed."""
        if read.path not in self._states:
            self._states[read.path] = state_of(read.path)
        state = self._states[read.path]
        if state is None or read.kind == "absent":
            return state is None and read.kind == "absent"
        if read.kind == "file":
            return modes.S_ISREG(state.st_mode) and self._is_same_file(read, state)
        if read.kind == "folder":
            return modes.S_ISDIR(state.st_mode) and (not read.digest or self._digest(read) == read.digest)
        return not modes.S_ISREG(state.st_mode) and not modes.S_ISDIR(state.st_mode)

    def _is_same_file(self, read: Read, state: os.stat_result) -> bool:
        size, mtime, identity = _signature(state)
        if size != read.size:
            return False
        if mtime == read.mtime and (identity == read.identity or _is_library(read.path)):
            return True
        return bool(read.digest) and self._digest(read) == read.digest

    def _digest(self, read: Read) -> str:
        key = (read.path, read.modules)
        if key not in self._digests:
            is_folder = read.kind == "folder"
            self._digests[key] = names_digest(read.path, modules=read.modules) if is_folder else file_digest(read.path)
        return self._digests[key]
