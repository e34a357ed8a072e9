"""The environment that a run will have: packages with their versions, Python, CUDA, driver, accelerators, memory."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec

from gonogo.evidence.environment.package_name import canonical
from gonogo.evidence.environment.version_range import parse_specifier, parse_version
from gonogo.evidence.field import Field
from gonogo.evidence.source_file import Place
from gonogo.finding import Edit, Text, translated

if TYPE_CHECKING:
    from packaging.version import Version

_UNKNOWN = Field.not_known()
_NO_VERSION = translated("not pinned to an exact version: {specifier}")
_ANY = translated("any")
_NOT_TOLD = translated("the version of {name} is not known")


class Package(msgspec.Struct, frozen=True):
    """One package, as far as its version is told. ``specifier`` is empty where any version will do."""

    name: str
    specifier: str = ""
    place: Place | None = None
    source: Text = Text("", "")
    written: str = ""
    """How its file writes versions, for :meth:`replacing`: ``requirement``, ``shell``, ``bare``; empty: it can't be."""
    specifier_place: Place | None = None
    """Where the specifier (for ``bare``: the version) stands, or would."""
    extras: str = ""
    """``deepspeed,qlora``: what of its optional parts is asked for."""
    address: str = ""
    """Where it is to be had, where that is no package index: a repository, an archive, a path. ``name`` is then what
    the file calls it, or only the address's last part; a package of the index with this name need not be the same."""

    @property
    def version_text(self) -> str | None:
        """The exact version as written, or None where there is none."""
        match = re.fullmatch(r"\s*===?\s*([^\s,*]+)\s*", self.specifier)
        return match[1] if match else None

    @property
    def version(self) -> Version | None:
        """The exact version, or None where it is not told, a range, or none that Python knows."""
        text = self.version_text
        return parse_version(text) if text else None

    def replacing(self, specifier: str) -> Edit | None:
        """A change of the version to ``specifier`` (``==0.14.4``, ``>=0.14.4,<0.15``), where the file can be edited."""
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
    """One accelerator, as far as it is told."""

    name: str
    memory: int | None = None
    """Bytes."""
    capability: tuple[int, int] | None = None
    """CUDA's compute capability."""


class UnreadableLine(msgspec.Struct, frozen=True):
    """Something in a file that could not be understood, and so may hide a version."""

    place: Place
    reason: Text


class Environment(msgspec.Struct, frozen=True):
    """What is known of the environment of a run. What nothing tells is unknown; what is not there is absent.

    ``complete`` says that ``packages`` are all there are.
    """

    packages: Mapping[str, Package] = {}
    """By canonical name."""
    sources: tuple[Text, ...] = ()
    complete: bool = False
    python: Field = _UNKNOWN
    cuda: Field = _UNKNOWN
    """The CUDA version that torch was built for; absent for a build without CUDA."""
    toolkit: Field = _UNKNOWN
    """nvcc's version; absent where there is none."""
    driver: Field = _UNKNOWN
    """NVIDIA's driver; absent where there is none."""
    nccl: Field = _UNKNOWN
    gcc: Field = _UNKNOWN
    gxx: Field = _UNKNOWN
    """g++'s version."""
    ninja: Field = _UNKNOWN
    """Where the program ninja is."""
    python_headers: Field = _UNKNOWN
    """Where Python.h is."""
    libaio: Field = _UNKNOWN
    """Where libaio's header or library is."""
    host_memory: Field = _UNKNOWN
    """Bytes, of the machine or as far as its control group lets it."""
    host_memory_available: Field = _UNKNOWN
    """Bytes that are not in use."""
    dev_shm: Field = _UNKNOWN
    """Bytes of /dev/shm in all."""
    dev_shm_free: Field = _UNKNOWN
    """Bytes of it that are not in use."""
    disk_free: Field = _UNKNOWN
    """Bytes, on the disk of the folder that gonogo was started in."""
    cache_disk_free: Field = _UNKNOWN
    """Bytes, on the disk of Hugging Face's cache."""
    memlock: Field = _UNKNOWN
    """Bytes that a process may lock in memory; -1 for no limit."""
    extension_lock: Field = _UNKNOWN
    """The lock of an extension's build that is older than an hour, under torch's folder of extensions."""
    open_files: Field = _UNKNOWN
    """Files that a process may have open; -1 for no limit."""
    cpus: Field = _UNKNOWN
    platform: Field = _UNKNOWN
    cann: Field = _UNKNOWN
    """Huawei's CANN toolkit, for Ascend."""
    gpus: tuple[Gpu, ...] = ()
    gpus_known: bool = False
    """Whether ``gpus`` are all there are, so that none means that there is none."""
    variables: Mapping[str, Field] = {}
    variables_known: bool = False
    """Whether a variable that is not in ``variables``, of the names that are recorded, is not set."""
    torch: Mapping[str, Any] = {}
    """torch's build: ``cuda``, ``hip``, ``git``, ``debug``."""
    unread: tuple[UnreadableLine, ...] = ()
    """What of its files could not be understood; what could is told all the same."""
    index_lines: tuple[Place, ...] = ()
    """Lines and words of its files that say from where packages are to be had: ``--extra-index-url URL``."""
    declared: Environment | None = None
    """What the files alone tell, where this Python stands in for the rest and need not be the one that trains."""

    @classmethod
    def unknown(cls) -> Environment:
        """Nothing is told."""
        return cls()

    def version(self, name: str) -> Version | None:
        """A package's version, where it is exactly known."""
        package = self.packages.get(canonical(name))
        return package.version if package is not None else None

    def place(self, name: str) -> Place | None:
        """Where a package stands in a file."""
        package = self.packages.get(canonical(name))
        return package.place if package is not None else None

    def field(self, name: str) -> Field:
        """A package's version as text, with its place; absent where it is known not to be there."""
        package = self.packages.get(canonical(name))
        if package is None:
            if self.complete:
                return Field.missing()
            return Field.not_known(reason=_NOT_TOLD.format(name=name))
        text = package.version_text
        if text is None:
            reason = _NO_VERSION.format(specifier=package.specifier or _ANY)
            return Field.not_known(package.place, reason)
        return Field(text, place=package.place)

    def within(self, name: str, specifier: str) -> bool | None:
        """Whether a package's version is in ``specifier`` (``>=0.14.1,<0.14.3``): surely, surely not, or not known.

        None where nothing is told of the package or it isn't there (:meth:`known_absent`), where its own range
        overlaps the specifier, and for a pre-release right at the specifier's border. Local versions (``+cu118``) count
        as what they are builds of. Raises ValueError for a specifier that is none.
        """
        wanted = parse_specifier(specifier)
        if wanted is None:
            raise ValueError(f"no specifier: {specifier!r}")
        package = self.packages.get(canonical(name))
        if package is None:
            return None
        version = package.version
        if version is not None:
            return wanted.has(version)
        stated = parse_specifier(package.specifier, released_only=True) if package.specifier else None
        return wanted.holds(stated) if stated is not None else None

    def has(self, name: str) -> bool | None:
        """Whether a package is there: surely, surely not, or not told."""
        return True if canonical(name) in self.packages else False if self.complete else None

    def known_absent(self, name: str) -> bool:
        """Whether a complete listing is without the package."""
        return self.has(name) is False

    def variable(self, name: str) -> Field:
        """An environment variable."""
        return self.variables.get(name) or (Field.missing() if self.variables_known else _UNKNOWN)

    def replacing_version(self, name: str, specifier: str) -> Edit | None:
        """A change of the package's version in the file that pins it; None where it can't be edited by hand."""
        package = self.packages.get(canonical(name))
        return package.replacing(specifier) if package is not None else None

    def over(self, other: Environment) -> Environment:
        """Both: this one's values win, package by package. A complete listing hides the other's packages."""
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
            changes["cuda"] = _UNKNOWN  # the other's torch is not this one
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
        """The same with exact versions of some packages in the place of all others; a file's that agrees stays.

        One that a file leaves open stands where the file names it: beside the others that the file pins.
        """
        laid = {
            name: self._at_declared_line(package)
            for name, package in packages.items()
            if name not in self.packages or self.within(name, package.specifier) is not True
        }
        return msgspec.structs.replace(self, packages={**self.packages, **laid})

    def _at_declared_line(self, package: Package) -> Package:
        asked = self.packages.get(package.name)
        if asked is None or asked.place is None or asked.specifier:
            return package
        return msgspec.structs.replace(package, place=asked.place, source=asked.source)


@lru_cache(maxsize=1)
def field_names() -> tuple[str, ...]:
    """The names of the Environment's fields that are :class:`Field`, in their order."""
    return tuple(name for name in Environment.__struct_fields__ if isinstance(getattr(_NOTHING, name), Field))


_NOTHING = Environment()
