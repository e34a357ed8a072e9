"""The cache of overlaid packages: a folder for each package, version and Python, filled by pip.

A folder is filled under a temporary name and then renamed, so it is complete or absent. Two rehearsals may fill the
same one at once: the second result is discarded.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from gonogo.finding import UserError, translated
from gonogo.prepare.packages.building import BuildFailed, build_wheel
from gonogo.prepare.packages.index import available_releases
from gonogo.prepare.packages.installers import FOLDER, installer_environment, pip_command
from gonogo.prepare.packages.names import WHEEL_REQUIRED_PACKAGES
from gonogo.prepare.packages.places import ReportProgress, cache_folder
from gonogo.prepare.packages.sources import SourceUnavailable, fetch_release_sources

_REPORT_AFTER_SECONDS = 2.0
_INSTALL_TIMEOUT = 900.0
_ABANDONED_AFTER_SECONDS = 24 * 3600.0
_BUILT_LOCALLY_MARKER = "gonogo-built-here"
"""A file that marks a package whose wheel was built on this machine."""


class PackageNotInstallable(Exception):
    """pip could not install a package. ``versions`` are those that it found of it, oldest first."""

    def __init__(self, reason: str, versions: tuple[Version, ...]) -> None:
        super().__init__(reason)
        self.why = reason
        self.versions = versions


def cached_or_installed_folder(
    name: str, specifier: SpecifierSet, report_progress: ReportProgress, *, unconfined: bool = False
) -> Path:
    """The folder of a version that matches the specifier: from the cache, or installed into it.

    ``name`` is canonical. Raises PackageNotInstallable if there is none or its build fails, and UserError if the
    cache can't be written.
    """
    cache = cache_folder()
    found = _find_cached_wheel(name, specifier)
    return (
        found if found is not None else _install_package(cache, name, specifier, report_progress, unconfined=unconfined)
    )


def is_locally_built(folder: Path) -> bool:
    """Whether the package in a cache folder comes from a wheel that was built on this machine."""
    return (folder / _BUILT_LOCALLY_MARKER).exists()


def cached_package_version(folder: Path, name: str) -> Version:
    """The version of a package in a folder of the cache."""
    return Version(_cached_distribution(folder, name).version)


def cached_package_requirements(folder: Path, name: str) -> list[Requirement]:
    """The requirements of a cached package on this machine, without extras."""
    found = []
    for text in _cached_distribution(folder, name).requires or []:
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            found.append(requirement)
    return found


def _cached_distribution(folder: Path, name: str) -> metadata.Distribution:
    return next(d for d in metadata.distributions(path=[str(folder)]) if canonicalize_name(d.metadata["Name"]) == name)


def _python_version_suffix() -> str:
    return f"-py{sys.version_info.major}.{sys.version_info.minor}"


def cached_versions(name: str) -> dict[Version, Path]:
    """The cached versions of a package (canonical name) for this Python, each with its folder."""
    found: dict[Version, Path] = {}
    cache = cache_folder()
    if not cache.is_dir():
        return found
    for folder in cache.iterdir():
        match = re.fullmatch(re.escape(name) + r"-(\d.*)" + re.escape(_python_version_suffix()), folder.name)
        if match is not None:
            with contextlib.suppress(InvalidVersion):
                found[Version(match[1])] = folder
    return found


def _find_cached_wheel(name: str, specifier: SpecifierSet) -> Path | None:
    found = cached_versions(name)
    best = max(specifier.filter(found, prereleases=True), default=None)
    return found[best] if best is not None else None


def _install_package(
    cache: Path, name: str, specifier: SpecifierSet, report_progress: ReportProgress, *, unconfined: bool
) -> Path:
    try:
        cache.mkdir(parents=True, exist_ok=True)
        _delete_abandoned_folders(cache)
        filling = Path(tempfile.mkdtemp(prefix=".filling-", dir=cache))
    except OSError as error:
        raise UserError(
            translated("can't write to the cache {path} ({why}): point XDG_CACHE_HOME to a writable folder").format(
                path=cache, why=error.strerror
            )
        ) from None
    try:
        try:
            _run_pip(f"{name}{specifier}", f"{name}{specifier}", filling, report_progress)
        except PackageNotInstallable as error:
            _build_and_install(name, specifier, filling, report_progress, error, unconfined=unconfined)
        target = cache / f"{name}-{cached_package_version(filling, name)}{_python_version_suffix()}"
        filling.chmod(0o755)
        try:
            os.rename(filling, target)
        except OSError:
            if not target.is_dir():  # else another rehearsal was faster
                raise
        return target
    finally:
        shutil.rmtree(filling, ignore_errors=True)


def _delete_abandoned_folders(cache: Path) -> None:
    for folder in cache.glob(".filling-*"):
        with contextlib.suppress(OSError):
            if time.time() - folder.stat().st_mtime > _ABANDONED_AFTER_SECONDS:
                shutil.rmtree(folder, ignore_errors=True)


def _build_and_install(
    name: str,
    specifier: SpecifierSet,
    target: Path,
    report_progress: ReportProgress,
    install_error: PackageNotInstallable,
    *,
    unconfined: bool,
) -> None:
    """Build a wheel, confined, from a version that is available only as sources, and install it.

    Raises PackageNotInstallable; pip's own error if there are no sources either.
    """
    if name in WHEEL_REQUIRED_PACKAGES:
        raise install_error
    what = translated("looking for the sources of {name}").format(name=name)
    with tempfile.TemporaryDirectory(prefix="gonogo-sources-") as folder:
        try:
            source = fetch_release_sources(name, str(specifier), None, Path(folder) / "source", what, report_progress)
        except SourceUnavailable:
            known = set(install_error.versions)
            with contextlib.suppress(UserError):
                known |= set(available_releases(name))
            raise PackageNotInstallable(install_error.why, tuple(sorted(known))) from None
        try:
            wheel = build_wheel(source, name, report_progress, unconfined=unconfined).wheel
        except BuildFailed as error:
            raise PackageNotInstallable(f"its build failed: {error}", ()) from None
    _run_pip(f"{name}{specifier}", str(wheel), target, report_progress)
    (target / _BUILT_LOCALLY_MARKER).touch()


def _run_pip(display_name: str, pip_target: str, target: Path, report_progress: ReportProgress) -> None:
    """Have pip install a wheel, from the index or from a file. No code of the package runs."""
    options = ["--no-deps", "--disable-pip-version-check", "--no-input", "--compile", "--target", str(target)]
    command = pip_command("install", *options, "--only-binary", ":all:", pip_target)
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=FOLDER,
            env=installer_environment(),
        )
        started = time.monotonic()
        try:
            while process.poll() is None:
                seconds = time.monotonic() - started
                if seconds > _INSTALL_TIMEOUT:
                    raise PackageNotInstallable(f"pip had not ended after {_INSTALL_TIMEOUT:.0f} s", ())
                if seconds > _REPORT_AFTER_SECONDS:
                    report_progress(
                        translated("installing {what} into gonogo's cache ({seconds:.0f} s)").format(
                            what=display_name, seconds=seconds
                        )
                    )
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(0.1)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        output.seek(0)
        text = output.read().decode(errors="replace")
    if process.returncode != 0:
        raise PackageNotInstallable(_failure_reason(text), _listed_versions(text))


def _failure_reason(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith(("ERROR:", "error:"))]
    raised = [line for line in lines if re.match(r"^[A-Za-z_.]*(Error|Exception)\b", line)]
    return (raised or errors or lines or ["pip said nothing"])[-1][:300]


def _listed_versions(text: str) -> tuple[Version, ...]:
    """The versions that pip lists if none of them matches."""
    match = re.search(r"\(from versions: ([^)]*)\)", text)
    found = []
    for part in match[1].split(",") if match else []:
        with contextlib.suppress(InvalidVersion):
            found.append(Version(part.strip()))
    return tuple(sorted(found))
