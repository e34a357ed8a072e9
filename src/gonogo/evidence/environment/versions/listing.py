"""The packages and facts collected while a file is read, before they become an Environment."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import Any

import msgspec

from gonogo.evidence.environment.compatibility import pypi_torch_cuda
from gonogo.evidence.environment.environment import Environment, Gpu, Package, UnreadableLine
from gonogo.evidence.environment.package_name import canonical_package_name
from gonogo.evidence.environment.version_range import parse_specifier, parse_version
from gonogo.evidence.field import Field
from gonogo.evidence.source_file import Place, SourceFile
from gonogo.finding import Text, translated

NAME = r"[A-Za-z0-9](?:[\w.-]{0,100}[A-Za-z0-9])?"

_FROM_PYPI_WHEEL = translated("PyPI's wheel of torch {version} for Linux is built for CUDA {cuda}")
_FROM_LOCAL_VERSION = translated("torch's local version {local}")


class PackageListing:
    """Packages and facts found in a file and those that it includes.

    Offsets are bytes, since readers search the file's :func:`latin1_text`.
    """

    def __init__(self, source: SourceFile) -> None:
        self.source = source
        self.packages: dict[str, Package] = {}
        self.constraints: list[Package] = []
        self.facts: dict[str, Any] = {}
        self.gpus: list[Gpu] = []
        self.gpus_known = False
        self.torch: dict[str, Any] = {}
        self.variables: dict[str, Field] = {}
        self.variables_known = False
        self.unread: list[UnreadableLine] = []
        self.lines = 0
        """Number of lines read from the file and those that it includes."""
        self.searched_to = 0
        """The position of the last package found; the next one is searched from here."""
        self.not_found = 0
        self.complete = False
        self.sources: list[Text] = []
        self.index_lines: list[Place] = []
        self.pypi = True
        """Whether torch is installed from PyPI, as far as the file indicates."""

    def add_package(
        self,
        name: str,
        specifier: str,
        place: Place | None = None,
        *,
        notation: str = "",
        specifier_place: Place | None = None,
        replace: bool = False,
        extras: str = "",
        address: str = "",
    ) -> None:
        """Add a package. If it was added before, both specifiers apply, or with ``replace`` only the later one."""
        where = f"{place.source.path}:{place.line}" if place is not None else self.source.path
        source = Text(where, where)
        found = Package(
            canonical_package_name(name), specifier.strip(), place, source, notation, specifier_place, extras, address
        )
        known = self.packages.get(found.name)
        if known is not None and replace and not found.specifier and not address:
            return
        if known is not None and not replace:
            found = intersect_packages(known, found)
        self.packages[found.name] = found

    def add_fact(self, name: str, value: Any, place: Place | None = None, reason: Text | None = None) -> None:
        """Add a fact about the machine, unless it is already known."""
        self.facts.setdefault(name, Field(value, place=place, reason=reason))

    def to_environment(self) -> Environment:
        """The environment made of all packages and facts collected so far."""
        for constraint in self.constraints:
            if constraint.name in self.packages:
                self.packages[constraint.name] = intersect_packages(self.packages[constraint.name], constraint)
        torch = self.packages.get("torch")
        version = torch.version if torch is not None else None
        if version is not None and torch is not None and "cuda" not in self.facts:
            self._add_cuda_of_torch(version.local, version.public, torch.place)
        nccl = next((p for n, p in self.packages.items() if re.fullmatch(r"nvidia-nccl-cu\d+", n)), None)
        if nccl is not None and nccl.version_text and "nccl" not in self.facts:
            self.add_fact("nccl", nccl.version_text, nccl.place)
        sources = tuple(self.sources) or ((Text(self.source.path, self.source.path),) if self else ())
        return Environment(
            packages=self.packages,
            sources=sources,
            complete=self.complete,
            gpus=tuple(self.gpus),
            gpus_known=self.gpus_known or bool(self.gpus),
            torch=self.torch,
            variables=self.variables,
            variables_known=self.variables_known,
            unread=tuple(self.unread),
            index_lines=tuple(self.index_lines),
            **self.facts,
        )

    def __bool__(self) -> bool:
        return bool(self.packages or self.facts or self.gpus)

    def _add_cuda_of_torch(self, local_label: str | None, public_version: str, place: Place | None) -> None:
        reason = _FROM_LOCAL_VERSION.format(local=f"+{local_label}")
        if local_label is not None:
            cuda = cuda_version_of_tag(local_label)
            if cuda is not None:
                self.add_fact("cuda", cuda, place, reason)
            elif re.match(r"cpu|rocm|xpu", local_label):
                self.facts["cuda"] = Field.missing()
            return
        for name, package in self.packages.items():
            if re.fullmatch(r"nvidia-cuda-runtime-cu\d+|nvidia-cuda-runtime", name) and package.version is not None:
                release = package.version.release
                self.add_fact("cuda", f"{release[0]}.{release[1] if len(release) > 1 else 0}", package.place)
                return
        if self.pypi:
            cuda = pypi_torch_cuda(public_version)
            if cuda is not None:
                self.add_fact("cuda", cuda, place, _FROM_PYPI_WHEEL.format(version=public_version, cuda=cuda))

    def record_unparsed(self, place: Place, reason: Text) -> None:
        """Record a part of a file that can't be parsed."""
        self.unread.append(UnreadableLine(place, reason))


def intersect_packages(left: Package, other: Package) -> Package:
    """A package restricted by both specifiers; its place is the one with the exact version."""
    first, second = (left, other) if left.version_text or not other.specifier else (other, left)
    address = left.address or other.address
    if first.version_text or not second.specifier or second.specifier == first.specifier:
        return first if first.address == address else msgspec.structs.replace(first, address=address)
    joined = f"{first.specifier},{second.specifier}" if first.specifier else second.specifier
    written = first.written if not second.specifier else ""
    extras = first.extras or second.extras
    return Package(first.name, joined, first.place, first.source, written, None, extras, address)


def cuda_version_of_tag(tag: str) -> str | None:
    """``12.1`` for ``cu121`` or ``cuda12.1``; None if a tag names no CUDA version."""
    match = re.match(r"cu(?:da)?-?(\d{1,2})\.(\d)", tag) or re.match(r"cu(\d{1,2})(\d)(?!\d)", tag)
    return f"{match[1]}.{match[2]}" if match else None


def repository_address(url: str, revision: str) -> str:
    """A git repository in pip's notation; in uv's lock file, the URL contains the revision."""
    address, _, fragment = url.removeprefix("git+").partition("#")
    address, _, query = address.partition("?")
    requested = re.search(r"(?:^|&)(?:rev|tag|branch)=([\w./-]+)", query)
    revision = revision or fragment or (requested[1] if requested is not None else "")
    return f"git+{address}" + (f"@{revision}" if revision else "")


def latin1_text(source: SourceFile) -> str:
    """The file decoded as latin-1, with one character per byte, so that positions are byte offsets."""
    text = source.data.decode("latin-1")
    return " " * source.start + text[source.start :] if source.start else text


def decode_latin1_as_utf8(text: str) -> str:
    """A part of :func:`latin1_text`, decoded as UTF-8."""
    return text.encode("latin-1").decode("utf-8", "surrogateescape")


def exact_specifier(version: str) -> str:
    """The specifier (``==2.1.0``) of a version in a listing; empty if it is no version."""
    version = version.strip()
    if not version or not re.fullmatch(r"[\w.!+*-]{1,100}", version):
        return ""
    return f"=={version}" if parse_version(version) is not None or version.endswith(".*") else f"==={version}"


def validated_specifier(specifier: str) -> str:
    """The specifier without spaces, or an empty string if it is invalid."""
    text = re.sub(r"\s+", "", specifier)
    return text if text and parse_specifier(text) is not None else ""


def resolve_included_path(base: SourceFile, base_file: SourceFile, name: str) -> str | None:
    """The path of a file that ``base`` names, if it is in the folder of ``base_file`` or the working directory."""
    if not base.writable or "\0" in name:
        return None
    path = os.path.normpath(os.path.join(os.path.dirname(base.path), name))
    real = os.path.realpath(path)
    roots: Iterable[str] = (os.path.dirname(os.path.abspath(base_file.path)), os.getcwd())
    inside = any(os.path.commonpath([os.path.realpath(root), real]) == os.path.realpath(root) for root in roots)
    return path if inside and os.path.isfile(path) else None


def find_string_literal(text: str, content: str, start: int) -> int:
    """The offset of a string literal's content; -1 if the text doesn't contain it."""
    places = [text.find(f"{quote}{content}{quote}", start) for quote in "\"'"]
    return min((at + 1 for at in places if at >= 0), default=-1)
