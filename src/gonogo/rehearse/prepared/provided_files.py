"""What was prepared, given to a rehearsal: found beside the launch, and shown where the program looks for it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from gonogo.confinement.trees import mirror_folder
from gonogo.evidence.prepared import FOLDER, MANIFEST, Prepared, read_prepared
from gonogo.finding import Text
from gonogo.rehearse.launch.environment import ON_PATH
from gonogo.rehearse.request import RehearsalRequest

AS_INSTALLED = Path("none")
"""``--environment none``: the packages that are installed, though others were prepared."""
_MAX_NAMES = 6
_MADE = Text(
    "made by gonogo prepare ({folder}/), and taken for the real ones where this launch opens them: {names}",
    "以下由 gonogo prepare 生成（{folder}/），本次启动打开它们时当作真实的：{names}",
)
_OWN = Text(
    "this project's own package is taken from {source}, as after pip install -e . --no-deps (found by gonogo prepare)",
    "本项目自身的包取自 {source}，相当于执行过 pip install -e . --no-deps（由 gonogo prepare 找到）",
)


def prepared_beside(folder: Path) -> Path | None:
    """The folder that ``gonogo prepare`` has made for launches typed here; None where there is none."""
    place = folder / FOLDER
    return place if read_prepared(place) is not None else None


def in_prepared_environment(request: RehearsalRequest, folder: Path) -> RehearsalRequest:
    """The request with the packages that were prepared for launches typed in a folder, unless it says others."""
    if request.environment == AS_INSTALLED:
        return replace(request, environment=None, as_installed=True)
    table = read_prepared(folder / FOLDER)
    if table is None or not table.environment or request.environment is not None or request.as_installed:
        return request
    file = Path(os.path.normpath(Path(FOLDER) / table.environment))  # an absolute one stays as it is
    if not (folder / file).is_file():
        return request
    with_packages = (*table.with_packages, *request.with_packages)
    return replace(request, environment=file, as_of=request.as_of or table.as_of, with_packages=with_packages)


def with_own_package(environment: Mapping[str, str], folder: Path) -> dict[str, str]:
    """A launch's environment in which the project's own package is found, with its commands."""
    table = read_prepared(folder / FOLDER)
    source = _source(table)
    if not source:
        return dict(environment)
    place = folder / FOLDER / "project"
    found = {**environment, ON_PATH: os.pathsep.join([source, str(place / "site")])}
    return {**found, "PATH": os.pathsep.join([environment.get("PATH", os.defpath), str(place / "bin")])}


def _source(table: Prepared | None) -> str:
    return table.source if table is not None and os.path.isdir(table.source) else ""


def note_on(folder: Path) -> list[Text]:
    """What a rehearsal has to say of what was prepared: which names are not the real ones."""
    table = read_prepared(folder / FOLDER)
    if table is None:
        return []
    names = [*table.models, *table.datasets, *table.paths]
    shown = ", ".join(names[:_MAX_NAMES]) + (f" (+{len(names) - _MAX_NAMES})" if len(names) > _MAX_NAMES else "")
    found = [_MADE.format(folder=FOLDER, names=shown)] if names else []
    if source := _source(table):
        found.append(_OWN.format(source=os.path.relpath(source, folder)))
    return found


def preparation_id(folder: Path) -> bytes:
    """What the table of the prepared folder says, for telling one preparation from another; empty without one."""
    place = prepared_beside(folder)
    return (place / MANIFEST).read_bytes() if place is not None else b""


def prepared_files(folder: Path, tree: Path) -> Path | None:
    """A tree that mirrors the root folder, with links to what stands for paths that are not on this machine.

    None where nothing was made for launches typed in ``folder``. What has come to lie there since then is left to be
    seen itself.
    """
    prepared = prepared_beside(folder)
    table = read_prepared(prepared) if prepared is not None else None
    for path, place in (table.paths if table is not None else {}).items():
        if os.path.lexists(path):
            continue
        real = os.path.realpath(os.path.dirname(path))
        link = Path(f"{tree}{real}/{os.path.basename(path)}")
        if not link.is_symlink():
            mirror_folder(tree, real)
            link.symlink_to((prepared or folder) / place)
    return tree if tree.exists() else None
