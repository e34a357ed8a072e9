"""Compatibility tables in ``tables/compatibility``: each row has its source; loaded on first use."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, TypeVar

import msgspec

from gonogo.evidence.environment.version_range import parse_specifier, parse_version
from gonogo.evidence.tables import TABLES
from gonogo.finding import Text

if TYPE_CHECKING:
    from packaging.version import Version

ComputeCapability = tuple[int, int]
_Table = TypeVar("_Table")


class TorchRelease(msgspec.Struct, frozen=True):
    """A minor release of torch on PyPI for Linux: its CUDA and NCCL versions, its first and last Python."""

    torch: str
    cuda: str
    nccl: str | None
    python: tuple[str, str]
    source: str


class TorchBuild(msgspec.Struct, frozen=True):
    """The compute capabilities that torch's wheels for a CUDA version are built for."""

    cuda: str
    torch: str
    capabilities: tuple[str, ...]
    source: str


class MinimumDriver(msgspec.Struct, frozen=True):
    """The oldest Linux driver for a CUDA version (``12``: for all 12.x)."""

    cuda: str
    driver: str
    source: str


class GpuArchitecture(msgspec.Struct, frozen=True):
    """A GPU compute capability: its name, the first CUDA toolkit that compiles for it, and the last one."""

    capability: str
    name: str
    first: str
    last: str | None
    source: str


class GpuNames(msgspec.Struct, frozen=True):
    """GPU products with one compute capability, by words in their names."""

    capability: str
    names: tuple[str, ...]
    source: str


class ModelTypeSupport(msgspec.Struct, frozen=True):
    """The transformers releases that have a model type: from ``first`` up to, but not including, ``removed``."""

    first: str
    removed: str | None
    oldest: bool
    """True if ``first`` is the oldest release in the table, so that older ones may have the type too."""
    source: str


class ReleaseRequirement(msgspec.Struct, frozen=True):
    """What a package's releases require. ``cuda`` and ``capability`` are those of the toolkit and the GPU."""

    package: str
    versions: str
    requires: Mapping[str, str]
    source: str
    cuda: str | None = None
    capability: str | None = None


class TorchPinnedReleases(msgspec.Struct, frozen=True):
    """Releases of a package (torchvision, xformers …), and the torch version that they are built for."""

    package: str
    versions: str
    torch: str
    source: str


class KnownBug(msgspec.Struct, frozen=True):
    """A known bug of a package's release: see ``about`` in ``known_bad.json``."""

    package: str
    versions: str
    beside: Mapping[str, str]
    when: str
    effect: Mapping[str, str]
    cure: Mapping[str, str]
    sources: tuple[str, ...]

    @property
    def effect_text(self) -> Text:
        """The bug's effect, as a clause: "importing it fails, as ..."."""
        return Text(self.effect["en"], self.effect["zh"])


class _TorchTable(msgspec.Struct, frozen=True):
    releases: tuple[TorchRelease, ...]
    builds: tuple[TorchBuild, ...]


class _CudaTable(msgspec.Struct, frozen=True):
    drivers: tuple[MinimumDriver, ...]
    architectures: tuple[GpuArchitecture, ...]
    gpus: tuple[GpuNames, ...]


class _BitsandbytesRow(msgspec.Struct, frozen=True):
    bitsandbytes: str
    cuda: tuple[str, ...]
    source: str


class _PackagesTable(msgspec.Struct, frozen=True):
    requires: tuple[ReleaseRequirement, ...]
    bitsandbytes: tuple[_BitsandbytesRow, ...]


class _TorchPinnedTable(msgspec.Struct, frozen=True):
    built_for: tuple[TorchPinnedReleases, ...]


class _KnownBugsTable(msgspec.Struct, frozen=True):
    known_bad: tuple[KnownBug, ...]


class _RequirementSinceRelease(msgspec.Struct, frozen=True):
    since: str
    requires: Mapping[str, str]


class _TransformersTable(msgspec.Struct, frozen=True):
    oldest: str
    newest: str
    added: Mapping[str, tuple[str, ...]]
    removed: Mapping[str, tuple[str, ...]]
    required: tuple[_RequirementSinceRelease, ...]
    source: str


@cache
def _load_table(name: str, kind: type[_Table]) -> _Table:
    path = TABLES / "compatibility" / f"{name}.json"
    return msgspec.json.decode(path.read_bytes(), type=kind)


def torch_pinned_releases(package: str) -> list[TorchPinnedReleases]:
    """A package's releases that are built for (or, like triton, required by) one torch release, oldest first."""
    return [row for row in _load_table("built_for", _TorchPinnedTable).built_for if row.package == package]


def releases_for_torch(package: str, torch: Version) -> str | None:
    """The specifier of a package's newest releases for a torch version; None if unknown."""
    fitting = [
        row for row in torch_pinned_releases(package) if (named := parse_specifier(row.torch)) and named.contains(torch)
    ]
    return fitting[-1].versions if fitting else None


def torch_release(version: str | Version) -> TorchRelease | None:
    """The facts about a torch release (``2.1.0``, ``2.1.0+cu118``); None if the table doesn't have it."""
    parsed = parse_version(str(version))
    if parsed is None or parsed.is_prerelease or len(parsed.release) < 2:
        return None
    minor = ".".join(map(str, parsed.release[:2]))
    return next((row for row in _load_table("torch", _TorchTable).releases if row.torch == minor), None)


def first_torch_supporting_python(python: tuple[int, ...], after: Version) -> str | None:
    """The first later minor release of torch with wheels for a Python version (3, 12); None if there is none."""
    releases: tuple[TorchRelease, ...] = _load_table("torch", _TorchTable).releases
    for row in releases:
        torch, first, last = parse_version(row.torch), parse_version(row.python[0]), parse_version(row.python[1])
        if torch is None or first is None or last is None or torch <= after:
            continue
        if first.release[:2] <= python <= last.release[:2]:
            return row.torch
    return None


def pypi_torch_cuda(version: str) -> str | None:
    """The CUDA version of PyPI's Linux wheel of a torch release (2.1.0: ``12.1``); None if unknown."""
    release = torch_release(version)
    return release.cuda if release is not None else None


def torch_build(cuda: str, torch: str | Version | None = None) -> TorchBuild | None:
    """The compute capabilities of torch's own wheels for a CUDA version; None if unknown or ambiguous."""
    minor = ".".join(cuda.split(".")[:2])
    rows = [row for row in _load_table("torch", _TorchTable).builds if row.cuda == minor]
    version = parse_version(str(torch)) if torch is not None else None
    if version is not None:
        fitting = (parse_specifier(row.torch) for row in rows)
        rows = [row for row, versions in zip(rows, fitting, strict=True) if versions and versions.contains(version)]
    return rows[0] if len(rows) == 1 else None


def supports_compute_capability(build: TorchBuild, capability: ComputeCapability) -> bool:
    """Whether a build has kernels for a GPU: for its major capability, and a minor one not above the GPU's."""
    built = [_parse_capability(one) for one in build.capabilities]
    return any(major == capability[0] and minor <= capability[1] for major, minor in built)


def minimum_driver(cuda: str) -> MinimumDriver | None:
    """The oldest Linux driver for programs built for a CUDA version (``12.1``); None if unknown."""
    parts = cuda.split(".")
    rows = _load_table("cuda", _CudaTable).drivers
    return next((row for row in rows if row.cuda in (parts[0], ".".join(parts[:2]))), None)


def gpu_architecture(capability: ComputeCapability) -> GpuArchitecture | None:
    """The architecture of a compute capability: of the highest known one not above it in the same major version."""
    best: GpuArchitecture | None = None
    for row in _load_table("cuda", _CudaTable).architectures:
        major, minor = _parse_capability(row.capability)
        nearer = best is None or _parse_capability(best.capability) < (major, minor)
        if major == capability[0] and minor <= capability[1] and nearer:
            best = row
    return best


def gpu_compute_capability(name: str) -> ComputeCapability | None:
    """The compute capability of a GPU product (``NVIDIA A100-SXM4-80GB``, ``A100``); None if unknown."""
    plain = f" {re.sub(r'[^A-Z0-9]+', ' ', name[:200].upper())} "
    best: tuple[int, str] = (0, "")
    for row in _load_table("cuda", _CudaTable).gpus:
        for words in row.names:
            # A product name may be followed by words (SXM4, Ti, Laptop GPU) or a letter (A10G, A800-80GB has no row).
            found = re.search(rf" {re.escape(words.upper())}(?:D|G)? ", plain)
            if found is not None and len(words) > best[0]:
                best = len(words), row.capability
    if best[0]:
        return _parse_capability(best[1])
    from gonogo.evidence.environment.hardware import all_accelerators

    squeezed = plain.replace(" ", "")
    for accelerator in all_accelerators():
        names = (accelerator.product, accelerator.name)
        if accelerator.device_type == "cuda" and squeezed in {re.sub(r"[^A-Z0-9]+", "", one.upper()) for one in names}:
            return accelerator.compute_capability
    return None


def _parse_capability(text: str) -> ComputeCapability:
    major, _, minor = text.partition(".")
    return int(major), int(minor or 0)


def releases_with_model_type(model_type: str) -> ModelTypeSupport | None:
    """The transformers releases that have a model type; None if none does (remote code)."""
    table = _load_table("transformers", _TransformersTable)
    first = next((release for release, types in table.added.items() if model_type in types), None)
    if first is None:
        return None
    removed = next((release for release, types in table.removed.items() if model_type in types), None)
    return ModelTypeSupport(first, removed, first == table.oldest, table.source)


def newest_known_transformers() -> str:
    """The newest transformers release in the table of model types."""
    newest: str = _load_table("transformers", _TransformersTable).newest
    return newest


def requirements_of_release(package: str, version: str | Version) -> tuple[ReleaseRequirement, ...]:
    """The requirements of a package's release, as far as the tables have them."""
    parsed = parse_version(str(version))
    if parsed is None:
        return ()
    if package == "transformers":
        table = _load_table("transformers", _TransformersTable)
        newest = parse_version(table.newest)
        best = None
        for row in table.required:
            since = parse_version(row.since)
            if since is not None and since <= parsed:
                best = row
        if best is None or newest is None or parsed > newest:
            return ()
        return (
            ReleaseRequirement(
                package, f"=={parsed}", best.requires, f"https://pypi.org/project/transformers/{best.since}/"
            ),
        )
    rows = [row for row in _load_table("packages", _PackagesTable).requires if row.package == package]
    return tuple(
        row for row in rows if (versions := parse_specifier(row.versions)) is not None and versions.contains(parsed)
    )


def bitsandbytes_cuda_versions(version: str | Version) -> tuple[tuple[str, ...], str] | None:
    """The CUDA versions that a bitsandbytes release has libraries for, and the source; None if unknown."""
    parsed = parse_version(str(version))
    rows = _load_table("packages", _PackagesTable).bitsandbytes
    for row in rows:
        known = parse_version(row.bitsandbytes)
        if parsed is not None and known is not None and parsed.release[:2] == known.release[:2]:
            return row.cuda, row.source
    return None


def known_bugs_of_release(package: str, version: str | Version | None = None) -> tuple[KnownBug, ...]:
    """The known bugs of a package's release, or of all its releases. Whether they occur depends on ``beside``."""
    rows = tuple(row for row in _load_table("known_bad", _KnownBugsTable).known_bad if row.package == package)
    if version is None:
        return rows
    parsed = parse_version(str(version))
    if parsed is None:
        return ()
    return tuple(
        row for row in rows if (versions := parse_specifier(row.versions)) is not None and versions.contains(parsed)
    )
