"""Asks the user before a project's packages are installed: lists them and remembers the answer.

It asks once for each project and list of packages, if there is a terminal; ``--yes`` answers it. Packages that only
``--with`` names need no confirmation.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from gonogo.evidence.prepared import FOLDER, OF
from gonogo.finding import Text, UserError, translated
from gonogo.finding.words import size
from gonogo.prepare.packages.places import state_folder
from gonogo.prepare.packages.resolving import ResolvedPackage
from gonogo.prepare.prompts import ask, can_ask, print_lines

_MAX_SHOWN = 400


class InstallNotConfirmed(UserError):
    """The user declined the installation of packages, or could not be asked."""


@dataclass(frozen=True)
class PlannedInstall:
    """What is about to be installed, and which of the listed packages are not."""

    file: Path
    folder: Path
    """Where it is installed."""
    listed: tuple[str, ...]
    """The requirements in the project's files, for which the answer is remembered."""
    packages: tuple[ResolvedPackage, ...]
    built: dict[str, str] = field(default_factory=dict)
    missing: tuple[Text, ...] = ()
    notes: tuple[Text, ...] = ()


_INSTALL_SUMMARY = translated(
    "{file} requires packages that are not installed: {count} would be installed{size} into gonogo's own "
    "folder {folder}"
)
_DOWNLOAD_SIZE = translated(" (at most {size} to download)")
_PACKAGES_FROM_HOST = translated("  from {host}: {names}")
_THIS_MACHINE = translated("local files")
_BUILT = translated("  built from source on this machine, in a sandbox: {names}")
_AND_TORCH = translated("  and torch (a CPU build, or this Python's own) with its dependencies")
_QUESTION = translated("Install these packages ({count})? [Y/n] ")
_CANNOT_ASK = translated(
    "{file} requires packages that are not installed ({count}){size}; installing them into gonogo's own "
    "folder {folder} needs confirmation, but there is no terminal to ask on: add --yes, or --environment "
    "none to rehearse with the installed packages"
)
_INSTALL_DECLINED = translated(
    "the packages that {file} requires were not installed: --environment none rehearses with the installed packages"
)


def require_consent(install_plan: PlannedInstall, *, yes: bool) -> None:
    """Ask the user whether the packages may be installed. Raises InstallNotConfirmed unless they agree."""
    project = _project_folder(install_plan.file)
    lines = _describe_packages(install_plan)
    if yes or project in _CONFIRMED_PROJECTS or set(install_plan.listed) <= _read_consent(project):
        print_lines(lines)
    else:
        answer = ask(lines, _QUESTION.format(count=len(install_plan.packages)))
        if answer is None:
            raise InstallNotConfirmed(
                _CANNOT_ASK.format(
                    file=_display_name(install_plan.file),
                    count=len(install_plan.packages),
                    size=_total_size(install_plan),
                    folder=install_plan.folder,
                )
            )
        if not answer:
            raise InstallNotConfirmed(_INSTALL_DECLINED.format(file=_display_name(install_plan.file)))
    _CONFIRMED_PROJECTS.add(project)
    _save_consent(project, install_plan.listed)


_CONFIRMED_PROJECTS: set[str] = set()
"""Projects that the user has confirmed in this process: prepare installs more if a first worker lacks something."""


def has_consent_or_terminal(folder: Path) -> bool:
    """Whether the user has confirmed packages of the project before, or there is a terminal to ask at."""
    project = str(folder.absolute().resolve())
    return project in _CONFIRMED_PROJECTS or bool(_read_consent(project)) or can_ask()


def _total_size(install_plan: PlannedInstall) -> Text:
    total = sum(one.size for one in install_plan.packages)
    return _DOWNLOAD_SIZE.format(size=size(total)) if total else Text("", "")


def _describe_packages(install_plan: PlannedInstall) -> list[Text]:
    count = len(install_plan.packages)
    lines = [
        _INSTALL_SUMMARY.format(
            file=_display_name(install_plan.file),
            count=count,
            size=_total_size(install_plan),
            folder=install_plan.folder,
        )
    ]
    by_host: dict[str, list[str]] = {}
    for one in install_plan.packages:
        if one.name not in install_plan.built:
            by_host.setdefault(one.host, []).append(f"{one.name} {one.version}".rstrip())
    for host, names in by_host.items():
        shown = ", ".join(names[:_MAX_SHOWN]) + (f" (+{len(names) - _MAX_SHOWN})" if len(names) > _MAX_SHOWN else "")
        lines.append(_PACKAGES_FROM_HOST.format(host=host or _THIS_MACHINE, names=shown))
    if install_plan.built:
        names = [f"{name} {version}" for name, version in install_plan.built.items()]
        lines.append(_BUILT.format(names=", ".join(names)))
    lines.append(_AND_TORCH)
    lines += [Text(f"  {one.en}", f"  {one.zh}") for one in (*install_plan.missing, *install_plan.notes)]
    return lines


# -- remembered answers


def _project_folder(file: Path) -> str:
    """The folder of a project's file; for a file that ``gonogo prepare`` wrote, the folder of its project."""
    folder = file.absolute().resolve().parent
    if folder.name != FOLDER:
        return str(folder)
    kept = _read_kept_project(folder)
    return kept[0] if kept else str(folder.parent)


def _read_kept_project(folder: Path) -> list[str]:
    """The project's folder and the names of its files, from a folder that a rehearsal keeps; empty for any other."""
    try:
        return (folder.parent / OF).read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeError):
        return []


def _display_name(file: Path) -> str:
    """The file as the user knows it: for one that a rehearsal keeps, the names of the project's own files."""
    folder = file.absolute().resolve().parent
    kept = _read_kept_project(folder) if folder.name == FOLDER else []
    return kept[1] if len(kept) == 2 and kept[1] else str(file)


def _consent_path(project: str) -> Path:
    return state_folder() / "agreed" / f"{hashlib.sha256(project.encode()).hexdigest()[:24]}.json"


def _read_consent(project: str) -> set[str]:
    """The requirements of the project that the user has confirmed."""
    try:
        consent = msgspec.json.decode(_consent_path(project).read_bytes())
    except (OSError, msgspec.MsgspecError, UnicodeError):
        return set()
    listed = consent.get("listed") if isinstance(consent, dict) and consent.get("project") == project else None
    return {one for one in listed if isinstance(one, str)} if isinstance(listed, list) else set()


def _save_consent(project: str, packages: Sequence[str]) -> None:
    """Remember the confirmation; if it can't be written, the user is asked again next time."""
    place = _consent_path(project)
    together = sorted({*_read_consent(project), *packages})
    content = json.dumps({"project": project, "listed": together}, indent=1, ensure_ascii=False)
    with contextlib.suppress(OSError):
        place.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=place.parent)
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(content)
        os.replace(name, place)
