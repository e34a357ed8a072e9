"""Creates an environment: resolves its packages, asks for consent and installs them, all or nothing."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

import gonogo
from gonogo.confinement.trees import remove_tree
from gonogo.evidence.environment.compatibility import torch_pinned_releases
from gonogo.finding import Text, UserError, translated
from gonogo.prepare.packages.addresses import PACKAGE_NOT_INSTALLED, describe_package_url, fetch_from_urls
from gonogo.prepare.packages.building import BUILD_PACKAGES
from gonogo.prepare.packages.consent import PlannedInstall
from gonogo.prepare.packages.installed import installed_version, link_torch
from gonogo.prepare.packages.names import PURE_PYTHON_REQUIREMENTS
from gonogo.prepare.packages.places import ReportProgress
from gonogo.prepare.packages.python_part import PythonPart, fetch_python_part, write_python_part
from gonogo.prepare.packages.requested import RequestedVersions
from gonogo.prepare.packages.resolving import LOCK_FILE_NAME, PackageResolver, ResolvedPackage
from gonogo.prepare.packages.torch_family import (
    TORCH_COMPANION_PACKAGES,
    companion_releases,
    install_for_torch,
    install_torch,
    install_torch_companion,
    is_required_by_another,
    torch_release_on_date,
)
from gonogo.prepare.packages.uv import WHEELS_ONLY_OPTIONS, UvFailed, run_uv, uv_target_options

# The shebang that uv writes into a relocatable environment, which finds Python beside the command.
_RELOCATABLE_SHEBANG = b"""#!/bin/sh
'''exec' "$(dirname -- "$(realpath -- "$0")")"/'python' "$0" "$@"
' '''
"""
_MAX_BYTES = 1 << 20

_ENVIRONMENT_FORMAT_VERSION = 16
"""Increased if environments are created differently, so that older ones are not used."""
_SETUPTOOLS = BUILD_PACKAGES[0]
# What gonogo's own code in a rehearsal needs besides torch: for records, and to write checkpoints from a config.
GONOGO_DEPENDENCIES = ("msgspec", "safetensors")

Consent = Callable[[PlannedInstall], None]
"""Gets what is about to be installed; raises if the user does not agree."""
_INDEX_LINE_IGNORED = translated(
    "ignored: {line} (packages are installed only from the indexes in your own pip and uv configuration)"
)
_CUDA_ONLY_PACKAGES = (
    *("flash-attn", "apex", "xformers", "torchvision", "torchaudio", "deepspeed-kernels", "pytorch-triton"),
    *("flashinfer-python", "sgl-kernel", "mamba-ssm", "causal-conv1d", "vllm", "sglang", "transformer-engine-torch"),
    *("transformer-engine-cu11", "transformer-engine-cu12", "transformer-engine-cu13", "transformer-engine-jax"),
)
"""Excluded even if another package requires them: their builds on PyPI need CUDA's libraries or nvcc."""


@dataclass(frozen=True)
class EnvironmentRequest:
    """The specification of an environment."""

    requirements: tuple[str, ...]
    pins: tuple[str, ...]
    """Requirements from ``--with``, which override those of the file."""
    python: str
    as_of: str | None
    built_for_cuda: tuple[str, ...]
    """Requested packages that aren't installed because they need CUDA; gonogo has stand-ins for some."""
    addresses: tuple[tuple[str, str], ...]
    """Packages that don't come from an index, each with its URL."""
    extras: tuple[tuple[str, str], ...]
    """The extras of those packages."""
    beside_torch: tuple[tuple[str, str], ...]
    """The requested releases of torchvision and torchaudio."""
    of_cuda: tuple[tuple[str, str], ...]
    """The requested releases of packages that need CUDA."""
    torch: str | None
    """The pinned torch if it isn't this Python's own: a CPU build of it is installed if possible."""

    @property
    def cache_key(self) -> str:
        """Identifies the environment's folder."""
        here = [str(installed_version("torch")), str(Path(gonogo.__file__).parent), _ENVIRONMENT_FORMAT_VERSION]
        beside = [
            f"{name}{dict(self.beside_torch).get(name, '')}"
            for name in TORCH_COMPANION_PACKAGES
            if name in self.built_for_cuda
        ]
        requested = [self.requirements, self.pins, self.python, self.as_of, self.torch, self.addresses, self.extras]
        text = json.dumps([*requested, *here, *beside, self.of_cuda])
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def make_environment(
    folder: Path,
    requested: EnvironmentRequest,
    file: Path,
    requested_versions: RequestedVersions,
    report_progress: ReportProgress,
    consent: Consent,
    *,
    unconfined: bool,
) -> None:
    """Create the environment in a temporary folder and then rename it, so that it is complete or absent."""
    what = translated("creating the environment of {file}").format(file=file.name)
    filling = Path(tempfile.mkdtemp(prefix=".filling-", dir=folder.parent))
    try:
        report_progress(what)
        addresses = dict(requested.addresses)
        fetched = fetch_from_urls(
            addresses, dict(requested.extras), filling / "fetched", report_progress, unconfined=unconfined
        )
        missing = {name: (addresses[name], why) for name, why in fetched.missing.items()}
        resolving = _make_resolver(
            requested, fetched.lines, list(missing), filling, what, report_progress, unconfined=unconfined
        )
        parts = _python_parts(dict(requested.of_cuda), requested.as_of, filling, what, report_progress)
        chosen = resolving.resolve()
        of_python = [line for one in chosen for line in PURE_PYTHON_REQUIREMENTS.get(one.name, ())]
        of_parts = [line for part in parts for line in part.requirements if _can_be_installed(line, requested)]
        if of_python or of_parts:
            try:
                chosen = resolving.resolve([*of_python, *of_parts])
                of_python += of_parts
            except UvFailed:
                if not of_parts:
                    raise
                chosen = resolving.resolve(of_python)  # they do not go with what the project pins
        consent(
            PlannedInstall(
                file=file,
                folder=folder.parent,
                listed=(*requested.requirements, *(f"{name} @ {address}" for name, address in requested.addresses)),
                packages=tuple(chosen),
                built={**fetched.built, **resolving.built},
                missing=tuple(_missing_package_text(name, *one) for name, one in missing.items()),
                notes=ignored_index_lines(requested_versions),
            )
        )
        venv = filling / "venv"
        run_uv(
            ["venv", "--relocatable", "--python", sys.executable, str(venv)],
            cwd=filling,
            what=what,
            report_progress=report_progress,
        )
        packages = next((venv / "lib").glob("python3.*/site-packages"))
        (packages / "gonogo").symlink_to(Path(gonogo.__file__).resolve().parent)
        torch = requested.torch or torch_release_on_date(requested.as_of, filling, what, report_progress)
        of_the_day = install_torch(venv, torch, filling, what, report_progress)
        of_today = link_torch(packages) if of_the_day is None else []
        if _leave_out_other_triton(resolving, chosen, Version(_versions_in(packages)["torch"])):
            resolving.resolve(of_python)
        _install(venv, filling, requested, resolving, of_today, of_python, of_the_day or [], what, report_progress)
        for name in TORCH_COMPANION_PACKAGES:
            if name in requested.built_for_cuda or is_required_by_another(name, packages):
                stated = dict(requested.beside_torch).get(name, "")
                releases = companion_releases(name, stated, requested.torch, _versions_in(packages)["torch"])
                install_torch_companion(venv, name, releases, filling, what, report_progress)
        lacking = {name: _asked_release(requested, name) for name in resolving.unavailable_packages}
        there = _versions_in(packages)
        lacking = {name: release for name, release in lacking.items() if name not in there}
        parts += _python_parts(lacking, requested.as_of, filling, what, report_progress)
        for part in parts:
            write_python_part(part, packages)
        rewrite_shebangs(venv)
        refused = resolving.unavailable_packages
        missing |= {
            name: (addresses.get(name, line), refused[name]) for name, line in fetched.lines.items() if name in refused
        }
        made = {
            "refused": {name: why for name, why in refused.items() if name not in fetched.lines},
            "missing": missing,
            "built": {**fetched.built, **resolving.built},
            "versions": _versions_in(packages),
            "torch": torch,
            "python_parts": [part.name for part in parts],
            "without_date": resolving.without_date,
        }
        (venv / "gonogo.json").write_text(json.dumps(made), encoding="utf-8")
        shutil.rmtree(folder, ignore_errors=True)  # an incomplete one
        os.rename(venv, folder)
    except UvFailed as error:
        raise UserError(
            translated("can't create the environment of {file}: {why}").format(file=file, why=error.reason)
        ) from None
    finally:
        remove_tree(filling)


def _python_parts(
    releases: Mapping[str, str], as_of: str | None, filling: Path, what: Text, report_progress: ReportProgress
) -> list[PythonPart]:
    """The Python code of those of the packages that need nvcc, by name with the release that is asked for."""
    found = (
        fetch_python_part(name, specifier, as_of, filling / f"part-{name}", what, report_progress)
        for name, specifier in releases.items()
    )
    return [part for part in found if part is not None]


def _can_be_installed(line: str, requested: EnvironmentRequest) -> bool:
    """Whether a requirement of such a package is one of the index, and not there already or compiled with nvcc too."""
    apart = {"torch", "triton", "setuptools", "ninja", *_CUDA_ONLY_PACKAGES, *requested.built_for_cuda}
    return canonicalize_name(Requirement(line).name) not in apart


def _asked_release(requested: EnvironmentRequest, name: str) -> str:
    lines = (Requirement(line) for line in requested.requirements)
    return next((str(line.specifier) for line in lines if canonicalize_name(line.name) == name), "")


def _leave_out_other_triton(resolver: PackageResolver, chosen: Sequence[ResolvedPackage], torch: Version) -> bool:
    """Leave out a triton that goes with another torch: torch imports it, and gonogo's stand-in fits any torch."""
    for one in (one for one in chosen if one.name == "triton"):
        rows = [row for row in torch_pinned_releases("triton") if SpecifierSet(row.versions).contains(one.version)]
        if rows and not any(SpecifierSet(row.torch).contains(torch.public) for row in rows):
            resolver.leave_out("triton", f"it goes with torch{rows[0].torch}, and torch {torch.public} is here")
            return True
    return False


def _make_resolver(
    requested: EnvironmentRequest,
    fetched_lines: dict[str, str],
    missing_packages: list[str],
    staging_folder: Path,
    activity: Text,
    report_progress: ReportProgress,
    *,
    unconfined: bool,
) -> PackageResolver:
    pins = list(requested.pins)
    of_setuptools = (Requirement(line) for line in (*requested.requirements, *pins))
    if not any(one.name == "setuptools" and one.specifier for one in of_setuptools):
        pins.append(_SETUPTOOLS)
    # A missing package is not taken from the index either, even if another package requires one of that name.
    never = ["torch", *requested.built_for_cuda, *_CUDA_ONLY_PACKAGES, *missing_packages]
    folder = staging_folder / "resolving"
    folder.mkdir()
    return PackageResolver(
        requested.requirements,
        pins,
        fetched_lines,
        never,
        requested.as_of,
        folder,
        activity,
        report_progress,
        unconfined=unconfined,
    )


def _versions_in(packages: Path) -> dict[str, str]:
    return {canonicalize_name(one.name): one.version for one in metadata.distributions(path=[str(packages)])}


def _install(
    venv: Path,
    staging_folder: Path,
    requested: EnvironmentRequest,
    resolver: PackageResolver,
    of_today: list[str],
    of_python: list[str],
    also: list[str],
    activity: Text,
    report_progress: ReportProgress,
) -> None:
    """Install the resolved packages.

    ``of_today`` are requirements of this Python's torch, which ignore the date; ``of_python`` and ``also`` are
    resolved together with the requested packages.
    """
    base = ["pip", "install", *uv_target_options(venv), *WHEELS_ONLY_OPTIONS]
    run_uv(
        [*base, *BUILD_PACKAGES, *GONOGO_DEPENDENCIES],
        cwd=staging_folder,
        what=activity,
        report_progress=report_progress,
    )
    as_of = ["--exclude-newer", requested.as_of] if requested.as_of else []
    install_for_torch(base, of_today, as_of, staging_folder, activity, report_progress)
    if also:
        resolver.resolve([*of_python, *also])
    run_uv(
        [*base, "--no-deps", "-r", str(staging_folder / "resolving" / LOCK_FILE_NAME)],
        cwd=staging_folder,
        what=activity,
        report_progress=report_progress,
    )
    install_for_torch(
        base, of_today, as_of, staging_folder, activity, report_progress
    )  # the project may pin older ones


def _missing_package_text(name: str, address: str, reason: str) -> Text:
    what, how = describe_package_url(name, address), PACKAGE_NOT_INSTALLED.format(why=reason, name=name)
    return Text(f"{what.en}: {how.en}", f"{what.zh}：{how.zh}")


def ignored_index_lines(requested_versions: RequestedVersions) -> tuple[Text, ...]:
    """A note for each index line in a file: it is not followed."""
    return tuple(_INDEX_LINE_IGNORED.format(line=line) for line in requested_versions.index_lines)


def rewrite_shebangs(folder: Path) -> None:
    """Have the commands below ``folder/bin`` that name this Python be started by ``folder/bin/python``."""
    for file in (folder / "bin").iterdir():
        if file.is_symlink() or not file.is_file() or file.stat().st_size > _MAX_BYTES:
            continue
        content = file.read_bytes()
        head, newline, rest = content.partition(b"\n")
        if head.startswith(b"#!/bin/sh") and rest.startswith(b"'''exec' "):  # the path was too long for a shebang
            head, newline, rest = b"#!" + rest.split(b" ", 2)[1].strip(b"'\""), b"\n", rest.partition(b"' '''\n")[2]
        if newline and head[2:].strip() in _interpreter_paths():
            file.write_bytes(_RELOCATABLE_SHEBANG + rest)


def _interpreter_paths() -> set[bytes]:
    return {str(path).encode() for path in (sys.executable, Path(sys.executable).resolve(), Path(sys.executable))}
