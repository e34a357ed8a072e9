"""A whole environment from a file with versions: its own Python packages, created by uv and kept for the next time.

If a training run's packages are much older than this Python's, overlaying a few of them is not enough: old
``datasets`` breaks with a new ``pyarrow``. So everything that the file lists is installed separately with its
dependencies, as of the project's date. Two differences from the user's machine remain and are reported: torch is a
CPU build (the pinned one if available, else this Python's own), and packages that are compiled for CUDA are replaced
by stand-ins.

Only wheels are installed; a package without one is built confined (``resolving.py``, ``building.py``). A package that
the project takes from a repository or an archive comes from there, or is missing (``addresses.py``).
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import platform
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from gonogo.evidence.prepared import FOLDER
from gonogo.finding import Text, UserError, translated
from gonogo.prepare.packages.addresses import (
    PACKAGE_NOT_INSTALLED,
    POSSIBLY_FROM_OTHER_URL,
    describe_package_url,
    is_installed_from,
)
from gonogo.prepare.packages.bytecode import compile_packages
from gonogo.prepare.packages.environment_build import Consent, EnvironmentRequest, ignored_index_lines, make_environment
from gonogo.prepare.packages.installed import installed_version, satisfies_specifier
from gonogo.prepare.packages.installers import installer_environment
from gonogo.prepare.packages.names import needs_cuda
from gonogo.prepare.packages.overlay import BUILT_FROM_SOURCE_NOTE, PackageOverlay
from gonogo.prepare.packages.places import ReportProgress, cache_folder
from gonogo.prepare.packages.requested import RequestedVersions, versions_from_file, versions_from_options
from gonogo.prepare.packages.sources import is_reachable
from gonogo.prepare.packages.torch_family import TORCH_COMPANION_PACKAGES
from gonogo.prepare.packages.uv import venv_python

_MAX_ENVIRONMENTS = 12
"""The most environments that are kept; the least recently used one is deleted first."""
_RETRY_AFTER_SECONDS = 3600.0
"""How long to wait before a URL that could not be reached is tried again."""


@dataclass
class _BuildOutcome:
    """An environment's Python, and how it differs from its file, as (what, explanation)."""

    python: Path
    differing: list[tuple[Text, Text]] = field(default_factory=list)
    notes: list[Text] = field(default_factory=list)
    names_differing: list[str] = field(default_factory=list)
    """Canonical names of packages that are missing or have another version."""
    torch: str = ""
    """The requested version of torch, if another one is there."""
    without_operators: list[str] = field(default_factory=list)
    """Those of them that are of the requested release, without its compiled operators."""
    by_date: list[str] = field(default_factory=list)
    """Those of them that the file allows, and that differ only from the releases of the day."""
    reasons: dict[str, tuple[Text, Text]] = field(default_factory=dict)
    """The entries of ``differing`` that are about one of these packages, by its name."""

    def add_difference(self, name: str, what: str | Text, explanation: Text) -> None:
        """Note that a package is missing or differs from what its file says."""
        stated = (Text(what, what) if isinstance(what, str) else what, explanation)
        self.names_differing.append(name)
        self.reasons[name] = stated
        self.differing.append(stated)


def build_full_environment(
    file: Path,
    with_packages: tuple[str, ...],
    as_of: str | None,
    report_progress: ReportProgress = lambda _text: None,
    *,
    consent: Consent = lambda _intended: None,
    unconfined: bool = False,
) -> PackageOverlay:
    """The environment that the file describes, created now or earlier; this Python's own if it has everything.

    ``with_packages`` (``NAME[==VERSION]``) override the file. ``as_of`` is the date (``2023-11-02``) whose releases
    are used for versions that aren't pinned; None means the date of the last commit. ``consent`` is called before
    anything is installed; ``unconfined`` builds packages without confinement. Raises UserError for a file or options
    that can't be read, if the environment can't be created, or if the cache can't be written.
    """
    pins = versions_from_options(with_packages, (wanted := versions_from_file(file)).specifiers)
    if (own := _installed_overlay(wanted, pins)) is not None:
        return own
    requested, made = _resolve_request(wanted, pins, _cutoff_date(as_of, file))
    folder = _environment_folder(requested, file)
    made.python = venv_python(folder)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _environment_lock(folder, report_progress):
            kept = _read_manifest(folder)
            if kept is None or _is_missing_source_reachable(folder, kept):
                make_environment(folder, requested, file, wanted, report_progress, consent, unconfined=unconfined)
                kept = _read_manifest(folder)
            assert kept is not None
            compile_packages(folder)
            os.utime(folder)
        _delete_oldest_environments(folder)
    except OSError as error:
        raise UserError(
            translated(
                "can't create the environment of {file} in {path} ({why}): point XDG_CACHE_HOME to a writable folder"
            ).format(file=file, path=folder.parent, why=error.strerror or error)
        ) from None
    return _build_overlay(made, kept, requested, file, wanted, has_explicit_date=as_of is not None)


def existing_environment(file: Path, with_packages: tuple[str, ...], as_of: str | None) -> PackageOverlay | None:
    """What :func:`build_full_environment` would return, if the environment already exists; creates nothing."""
    pins = versions_from_options(with_packages, (wanted := versions_from_file(file)).specifiers)
    if (own := _installed_overlay(wanted, pins)) is not None:
        return own
    requested, made = _resolve_request(wanted, pins, _cutoff_date(as_of, file))
    folder = _environment_folder(requested, file)
    kept = _read_manifest(folder)
    made.python = venv_python(folder)
    return (
        _build_overlay(made, kept, requested, file, wanted, has_explicit_date=as_of is not None)
        if kept is not None
        else None
    )


def _installed_overlay(requested_versions: RequestedVersions, pins: dict[str, SpecifierSet]) -> PackageOverlay | None:
    """This Python's packages if they satisfy all requirements, else None."""
    addresses = {name: address for name, address in requested_versions.addresses.items() if name not in pins}
    any_version = dict.fromkeys((*requested_versions.without_version, *addresses), SpecifierSet())
    needed = {**requested_versions.specifiers, **any_version, **pins}
    if not all(satisfies_specifier(installed_version(name), specifier) for name, specifier in needed.items()):
        return None
    others = {name: address for name, address in addresses.items() if not is_installed_from(name, address)}
    return PackageOverlay(
        differing=tuple(others),
        skipped=tuple(
            (
                describe_package_url(name, address),
                POSSIBLY_FROM_OTHER_URL.format(name=name, version=installed_version(name)),
            )
            for name, address in others.items()
        ),
    )


def _environment_folder(requested: EnvironmentRequest, file: Path) -> Path:
    return cache_folder().parent / "environments" / f"{file.stem or 'environment'}-{requested.cache_key}"


def _is_missing_source_reachable(folder: Path, manifest: dict[str, Any]) -> bool:
    """Whether a source that was unreachable when the environment was created can be reached now."""
    stamp = folder / "gonogo.json"
    if not manifest["missing"] or time.time() - stamp.stat().st_mtime < _RETRY_AFTER_SECONDS:
        return False
    os.utime(stamp)
    return any(
        is_reachable(address) for address, why in manifest["missing"].values() if not why.startswith("its build")
    )


def _build_overlay(
    outcome: _BuildOutcome,
    manifest: dict[str, Any],
    requested: EnvironmentRequest,
    file: Path,
    requested_versions: RequestedVersions,
    *,
    has_explicit_date: bool,
) -> PackageOverlay:
    _add_differences_and_notes(
        outcome, manifest, requested, file, requested_versions, has_explicit_date=has_explicit_date
    )
    return PackageOverlay(
        python=outcome.python,
        versions={n: Version(v) for n, v in manifest["versions"].items() if n not in outcome.names_differing},
        differing=tuple(outcome.names_differing),
        torch=outcome.torch,
        by_date=tuple(outcome.by_date),
        without_operators=tuple(outcome.without_operators),
        skipped=tuple(outcome.differing),
        reasons=outcome.reasons,
        notes=tuple(outcome.notes),
    )


TODAY = "today"
"""As a date: releases are not limited, and this Python's torch is used wherever the file allows it."""


def _cutoff_date(as_of: str | None, file: Path) -> str | None:
    """The day after which no release counts; None for no limit. Raises UserError for text that isn't a date."""
    if as_of is None:
        return last_commit_date(file)
    if as_of == TODAY:
        return None
    try:
        return date.fromisoformat(as_of).isoformat()
    except ValueError:
        raise UserError(
            translated("--as-of {value}: write a date, for example 2023-11-02, or today").format(value=as_of)
        ) from None


def _resolve_request(
    requested_versions: RequestedVersions, pins: dict[str, SpecifierSet], cutoff_date: str | None
) -> tuple[EnvironmentRequest, _BuildOutcome]:
    made = _BuildOutcome(Path())
    here = platform.python_version_tuple()[:2]
    python = ".".join(here)
    if requested_versions.python is not None and not _allows_python(requested_versions.python, python):
        made.differing.append(
            (
                Text(f"Python {requested_versions.python}", f"Python {requested_versions.python}"),
                translated("rehearsed with {here}, which has a torch build").format(here=python),
            )
        )
    listed = dict.fromkeys((*requested_versions.specifiers, *requested_versions.without_version, *pins))
    for_cuda = [name for name in listed if needs_cuda(name)]
    installed_apart = {"torch", "gonogo", *for_cuda}
    requirements = [
        f"{name}{requested_versions.extras.get(name, '')}{pins.get(name, specifier)}"
        for name, specifier in requested_versions.specifiers.items()
        if name not in installed_apart
    ]
    requirements += [name for name in requested_versions.without_version if name not in installed_apart]
    listed_or_apart = {*requested_versions.specifiers, *requested_versions.without_version, *installed_apart}
    requirements += [
        f"{name}{requested_versions.extras.get(name, '')}{specifier}"
        for name, specifier in pins.items()
        if name not in listed_or_apart
    ]
    exact = [f"{name}{specifier}" for name, specifier in pins.items() if name not in installed_apart]
    torch = pins.get("torch", requested_versions.specifiers.get("torch", SpecifierSet()))
    own = installed_version("torch")
    fits = own is not None and torch.contains(Version(own.public), prereleases=True)
    requested = EnvironmentRequest(
        requirements=tuple(sorted(requirements)),
        pins=tuple(sorted(exact)),
        python=python,
        as_of=cutoff_date,
        built_for_cuda=tuple(sorted(for_cuda)),
        beside_torch=tuple(
            (name, str(pins.get(name) or requested_versions.specifiers.get(name) or ""))
            for name in TORCH_COMPANION_PACKAGES
            if name in pins or name in requested_versions.specifiers
        ),
        addresses=tuple(sorted((name, one) for name, one in requested_versions.addresses.items() if name not in pins)),
        extras=tuple(
            sorted(
                (name, requested_versions.extras[name])
                for name in requested_versions.addresses
                if name in requested_versions.extras
            )
        ),
        of_cuda=tuple(
            (name, str(pins.get(name) or requested_versions.specifiers.get(name) or "")) for name in sorted(for_cuda)
        ),
        torch=None if fits else str(torch),
    )
    return requested, made


def _allows_python(python_requirement: str, python: str) -> bool:
    with contextlib.suppress(ValueError):
        return SpecifierSet(
            python_requirement if python_requirement[:1] in "<>=!~" else f"=={python_requirement}.*"
        ).contains(f"{python}.99")
    return python_requirement.split(".")[:2] == python.split(".")


def last_commit_date(file: Path) -> str | None:
    """The date of the last commit in the file's repository; None without a commit."""
    # The repository's own settings may name programs to run: for signatures, file monitors, missing objects.
    settings = ("log.showSignature=false", "core.fsmonitor=false", "core.hooksPath=/dev/null", "protocol.allow=never")
    options = [word for setting in settings for word in ("-c", setting)]
    command = ["git", *options, "-C", str(file.absolute().parent), "log", "-1", "--format=%cs"]
    environment = {**installer_environment(), "GIT_NO_LAZY_FETCH": "1"}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=20, env=environment, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None


@contextlib.contextmanager
def _environment_lock(folder: Path, report_progress: ReportProgress) -> Iterator[None]:
    """Lock the environment's folder against other processes that create it."""
    with open(folder.with_name(f".{folder.name}.lock"), "w") as lock:
        started = time.monotonic()
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                report_progress(
                    translated("another gonogo process is creating this environment ({seconds:.0f} s)").format(
                        seconds=time.monotonic() - started
                    )
                )
                time.sleep(0.2)
        yield


def _read_manifest(folder: Path) -> dict[str, Any] | None:
    """The manifest of a complete environment: packages left out, versions, torch; None if there is none."""
    try:
        found: dict[str, Any] = json.loads((folder / "gonogo.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if venv_python(folder).exists() else None


def _delete_oldest_environments(folder: Path) -> None:
    """Delete all but the newest environments; those in use aren't locked, so only old ones are deleted."""
    others = sorted(
        (one for one in folder.parent.iterdir() if one.is_dir() and not one.name.startswith(".")),
        key=lambda one: one.stat().st_mtime,
        reverse=True,
    )
    for old in others[_MAX_ENVIRONMENTS:]:
        shutil.rmtree(old, ignore_errors=True)


def _add_differences_and_notes(
    outcome: _BuildOutcome,
    manifest: dict[str, Any],
    requested: EnvironmentRequest,
    file: Path,
    requested_versions: RequestedVersions,
    *,
    has_explicit_date: bool,
) -> None:
    """Add the differences and notes that are reported about the environment."""
    versions, torch = manifest["versions"], manifest.get("torch")
    if torch is not None and not SpecifierSet(torch).contains(Version(versions["torch"]).public):
        outcome.add_difference(
            "torch", f"torch{torch}", _OTHER_VERSION_REHEARSED.format(name="torch", version=versions["torch"])
        )
        outcome.torch = torch
        if requested.torch is None:  # the file allows it, only the day does not
            outcome.by_date.append("torch")
    for name in requested.built_for_cuda:
        if name in versions:  # torchvision or torchaudio, with a CPU build of torch, or the Python part of another
            outcome.add_difference(name, name, _WITHOUT_COMPILED_OPS.format(name=name, version=versions[name]))
            stated = SpecifierSet(dict(requested.of_cuda).get(name, ""))
            is_of_torch = name in TORCH_COMPANION_PACKAGES and "torch" in outcome.names_differing
            if not is_of_torch and stated.contains(Version(versions[name]).public):
                outcome.without_operators.append(name)
        else:
            outcome.add_difference(name, name, _BUILT_FOR_CUDA)
    for name, why in manifest["refused"].items():
        specifier = next((line for line in requested.requirements if Requirement(line).name == name), name)[len(name) :]
        how = translated("could not be installed: {why}").format(why=why)
        if name in manifest.get("python_parts", ()):
            how = _WITHOUT_COMPILED_OPS.format(name=name, version=versions[name])
            outcome.without_operators.append(name)
        elif name in versions:
            other = _OTHER_VERSION_REHEARSED.format(name=name, version=versions[name])
            how = translated("{other}; it {how}").format(other=other, how=how)
        outcome.add_difference(name, f"{name}{specifier}", how)
    for name, (address, why) in manifest["missing"].items():
        outcome.add_difference(
            name, describe_package_url(name, address), PACKAGE_NOT_INSTALLED.format(why=why, name=name)
        )
    of_day = Text("", "")
    if requested.as_of is not None:
        of_day = (_WITHOUT_DATE if manifest.get("without_date") else _AS_OF_DAY).format(day=requested.as_of)
    if requested.as_of is not None and not has_explicit_date:
        of_day = translated("{of_day} (the repository's last commit; change it with --as-of DATE)").format(
            of_day=of_day
        )
    of_file = translated("rehearsed in the environment of {file}{of_day}")
    of_project = translated(
        "rehearsed with the packages that the project requires{of_day} (--environment none: with the installed ones)"
    )
    outcome.notes.append((of_project if file.parent.name == FOLDER else of_file).format(file=file, of_day=of_day))
    if manifest["built"]:
        names = ", ".join(f"{name} {version}" for name, version in manifest["built"].items())
        outcome.notes.append(BUILT_FROM_SOURCE_NOTE.format(names=names))
    outcome.notes += ignored_index_lines(requested_versions)


_AS_OF_DAY = translated(", with releases as of {day}")
_WITHOUT_DATE = translated(", with later releases than those of {day}, of which too few support this Python")
_OTHER_VERSION_REHEARSED = translated("rehearsed with {name} {version}")
_WITHOUT_COMPILED_OPS = translated(
    "rehearsed with {name} {version} without its compiled ops, which need CUDA libraries"
)
_BUILT_FOR_CUDA = translated("built for CUDA: not installed; replaced by gonogo's stand-in if there is one")
