"""The environment of a run: packages with their versions, Python, CUDA, driver, accelerators, memory."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec

from gonogo.evidence.environment.package_name import canonical_package_name
from gonogo.evidence.environment.version_range import parse_specifier, parse_version
from gonogo.evidence.field import Field
from gonogo.evidence.source_file import Place
from gonogo.finding import Edit, Text, translated

if TYPE_CHECKING:
    from packaging.version import Version

_UNKNOWN_FIELD = Field.not_known()
_NOT_PINNED = translated("the version is not pinned exactly: {specifier}")
_ANY_VERSION = translated("any")
_VERSION_NOT_KNOWN = translated("the version of {name} is not known")


ADDED_HEADING = "# What the launch needs beside:"
"""Below this line of an environment that gonogo put together are packages that the project's files don't name."""


class Package(msgspec.Struct, frozen=True):
    """A package and its version, as far as known. ``specifier`` is empty if it is not restricted."""

    name: str
    specifier: str = ""
    place: Place | None = None
    source: Text = Text("", "")
    written: str = ""
    """How its file writes versions, for :meth:`replacing`: ``requirement``, ``shell``, ``bare``; empty: read-only."""
    specifier_place: Place | None = None
    """The place of the specifier (for ``bare``: of the version), or where it would be inserted."""
    extras: str = ""
    """The requested extras: ``deepspeed,qlora``."""
    address: str = ""
    """The URL or path of a package that is not from an index: a repository, an archive, a folder.

    ``name`` is then the name in the file or only the last part of the address, and may not be the package with this
    name on the index.
    """

    @property
    def is_added_by_gonogo(self) -> bool:
        """Whether the project doesn't list it itself, so that its release is gonogo's choice."""
        place = self.place
        return place is not None and ADDED_HEADING.encode() in place.source.data[: place.start]

    @property
    def version_text(self) -> str | None:
        """The exact version as written, or None if there is none."""
        match = re.fullmatch(r"\s*===?\s*([^\s,*]+)\s*", self.specifier)
        return match[1] if match else None

    @property
    def version(self) -> Version | None:
        """The exact version; None if it is unknown, a range, or invalid."""
        text = self.version_text
        return parse_version(text) if text else None

    def replacing(self, specifier: str) -> Edit | None:
        """An edit that changes the version to ``specifier`` (``>=0.14.4,<0.15``); None if the file isn't editable."""
        place = self.specifier_place
        if place is None or not self.written or not place.source.writable:
            return None
        if self.written == "bare":
            exact = re.fullmatch(r"==([^\s,*]+)", specifier)
            return place.edit(exact[1]) if exact else None
        if self.written == "shell" and re.search(r"[<>!;~*|&$ ]", specifier):
            word = self.place
            if word is None or place.source.data[max(word.start - 1, 0) : word.start] in (b"'", b'"'):
                return place.edit(specifier)
            data = place.source.data
            before, after = data[word.start : place.start], data[place.end : word.end]
            return word.edit(f'"{(before + specifier.encode() + after).decode("utf-8", "replace")}"')
        return place.edit(specifier)


class Gpu(msgspec.Struct, frozen=True):
    """An accelerator, as far as known."""

    name: str
    memory: int | None = None
    """In bytes."""
    capability: tuple[int, int] | None = None
    """CUDA's compute capability."""


class UnreadableLine(msgspec.Struct, frozen=True):
    """Part of a file that could not be parsed, and so may contain a version."""

    place: Place
    reason: Text


class Environment(msgspec.Struct, frozen=True):
    """The known facts about a run's software and machine: packages, Python, driver, GPUs, memory.

    ``complete``: ``packages`` are all packages.
    """

    packages: Mapping[str, Package] = {}
    """By canonical name."""
    sources: tuple[Text, ...] = ()
    complete: bool = False
    python: Field = _UNKNOWN_FIELD
    cuda: Field = _UNKNOWN_FIELD
    """The CUDA version that torch is built for; absent for a build without CUDA."""
    toolkit: Field = _UNKNOWN_FIELD
    """nvcc's version; absent if there is none."""
    driver: Field = _UNKNOWN_FIELD
    """The version of NVIDIA's driver; absent if there is none."""
    nccl: Field = _UNKNOWN_FIELD
    gcc: Field = _UNKNOWN_FIELD
    gxx: Field = _UNKNOWN_FIELD
    """g++'s version."""
    ninja: Field = _UNKNOWN_FIELD
    """The path of ninja."""
    python_headers: Field = _UNKNOWN_FIELD
    """The path of Python.h."""
    libaio: Field = _UNKNOWN_FIELD
    """The path of libaio's header or library."""
    host_memory: Field = _UNKNOWN_FIELD
    """In bytes: the machine's memory, or the limit of its cgroup."""
    host_memory_available: Field = _UNKNOWN_FIELD
    """Available memory in bytes."""
    dev_shm: Field = _UNKNOWN_FIELD
    """Total size of /dev/shm in bytes."""
    dev_shm_free: Field = _UNKNOWN_FIELD
    """Free space in /dev/shm in bytes."""
    disk_free: Field = _UNKNOWN_FIELD
    """Free bytes on the disk of gonogo's working directory."""
    cache_disk_free: Field = _UNKNOWN_FIELD
    """Free bytes on the disk of the Hugging Face cache."""
    memlock: Field = _UNKNOWN_FIELD
    """Limit of locked memory in bytes; -1 for no limit."""
    extension_lock: Field = _UNKNOWN_FIELD
    """A lock file older than an hour, left by a build in torch's extensions folder."""
    open_files: Field = _UNKNOWN_FIELD
    """Limit of open files; -1 for no limit."""
    cpus: Field = _UNKNOWN_FIELD
    platform: Field = _UNKNOWN_FIELD
    cann: Field = _UNKNOWN_FIELD
    """The version of Huawei's CANN toolkit, for Ascend."""
    gpus: tuple[Gpu, ...] = ()
    gpus_known: bool = False
    """Whether ``gpus`` is complete, so that an empty tuple means that there are none."""
    variables: Mapping[str, Field] = {}
    variables_known: bool = False
    """Whether ``variables`` is complete, so that a recorded name that is not in it is not set."""
    torch: Mapping[str, Any] = {}
    """torch's build: ``cuda``, ``hip``, ``git``, ``debug``."""
    unread: tuple[UnreadableLine, ...] = ()
    """Parts of its files that could not be parsed; the rest was read."""
    index_lines: tuple[Place, ...] = ()
    """Places in its files that set a package index: ``--extra-index-url URL``."""
    declared: Environment | None = None
    """What the files alone state, if the rest is from this Python, which may not be the one used for training."""
    alternatives: tuple[Environment, ...] = ()
    """What the project's other files declare that the environment may be made from instead."""

    @classmethod
    def unknown(cls) -> Environment:
        """An environment in which nothing is known."""
        return cls()

    def version(self, name: str) -> Version | None:
        """A package's version, if known exactly."""
        package = self.packages.get(canonical_package_name(name))
        return package.version if package is not None else None

    def place(self, name: str) -> Place | None:
        """Where in a file a package's version is stated."""
        package = self.packages.get(canonical_package_name(name))
        return package.place if package is not None else None

    def field(self, name: str) -> Field:
        """A package's version as a string, with its place; absent if the package is known not to be installed."""
        package = self.packages.get(canonical_package_name(name))
        if package is None:
            if self.complete:
                return Field.missing()
            return Field.not_known(reason=_VERSION_NOT_KNOWN.format(name=name))
        text = package.version_text
        if text is None:
            reason = _NOT_PINNED.format(specifier=package.specifier or _ANY_VERSION)
            return Field.not_known(package.place, reason)
        return Field(text, place=package.place)

    def within(self, name: str, specifier: str) -> bool | None:
        """Whether a package's version is within ``specifier`` (``>=0.14.1,<0.14.3``).

        None if nothing is known about the package or it is not installed (:meth:`is_known_absent`), if its range
        overlaps the specifier, and for a pre-release exactly at the specifier's bound. A local version (``+cu118``)
        counts as its public version. Raises ValueError for an invalid specifier.
        """
        wanted = parse_specifier(specifier)
        if wanted is None:
            raise ValueError(f"no specifier: {specifier!r}")
        package = self.packages.get(canonical_package_name(name))
        if package is None:
            return None
        version = package.version
        if version is not None:
            return wanted.contains(version)
        stated = parse_specifier(package.specifier, released_only=True) if package.specifier else None
        return wanted.covers(stated) if stated is not None else None

    def has(self, name: str) -> bool | None:
        """Whether a package is installed; None if unknown."""
        return True if canonical_package_name(name) in self.packages else False if self.complete else None

    def is_known_absent(self, name: str) -> bool:
        """Whether the package is missing from a list that is known to be complete."""
        return self.has(name) is False

    def variable(self, name: str) -> Field:
        """The value of an environment variable."""
        return self.variables.get(name) or (Field.missing() if self.variables_known else _UNKNOWN_FIELD)

    def replacing_version(self, name: str, specifier: str) -> Edit | None:
        """An edit of the package's version in the file that pins it; None if the file can't be edited."""
        package = self.packages.get(canonical_package_name(name))
        return package.replacing(specifier) if package is not None else None

    def merged_over(self, other: Environment) -> Environment:
        """This environment with gaps filled from another one; if this one is complete, it has all packages."""
        if self.complete or not other.packages:
            packages, complete = self.packages, self.complete
        else:
            packages = {**other.packages, **self.packages}
            complete = other.complete and not self.packages
        changes: dict[str, Any] = {}
        for name in field_names():
            value: Field = getattr(self, name)
            changes[name] = getattr(other, name) if value.unknown else value
        if self.packages and "torch" in self.packages and self.cuda.unknown:
            changes["cuda"] = _UNKNOWN_FIELD  # the other environment's CUDA belongs to another torch
        gpus = self if self.gpus or self.gpus_known else other
        return Environment(
            packages=packages,
            sources=(*self.sources, *(one for one in other.sources if one not in self.sources)),
            complete=complete,
            gpus=gpus.gpus,
            gpus_known=gpus.gpus_known,
            variables={**other.variables, **self.variables},
            variables_known=self.variables_known or other.variables_known,
            unread=(*self.unread, *other.unread),
            index_lines=(*self.index_lines, *other.index_lines),
            torch=self.torch or ({} if "torch" in self.packages else other.torch),
            **changes,
        )

    def with_overrides(self, packages: Mapping[str, Package]) -> Environment:
        """A copy with the exact versions of some packages replaced; a version in a file that agrees is kept.

        An overridden package that a file lists without a version keeps its place in that file.
        """
        laid = {
            name: self._with_declared_place(package)
            for name, package in packages.items()
            if name not in self.packages or self.within(name, package.specifier) is not True
        }
        return msgspec.structs.replace(self, packages={**self.packages, **laid})

    def _with_declared_place(self, package: Package) -> Package:
        """The package with the place at which a file states the same version."""
        requested = self.packages.get(package.name)
        if requested is None or requested.place is None or requested.specifier:
            return package
        return msgspec.structs.replace(package, place=requested.place, source=requested.source)


@lru_cache(maxsize=1)
def field_names() -> tuple[str, ...]:
    """The names of all fields of Environment that are a :class:`Field`, in order."""
    return tuple(name for name in Environment.__struct_fields__ if isinstance(getattr(_EMPTY_ENVIRONMENT, name), Field))


_EMPTY_ENVIRONMENT = Environment()
