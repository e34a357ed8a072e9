"""What a rehearsal is asked for: the command line's options, as they were given."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path

from gonogo.evidence.prepared import FOLDER, parent_of_prepared, read_prepared
from gonogo.prepare.provided_files import AS_INSTALLED
from gonogo.rehearse.lives import StageCommands
from gonogo.rehearse.viewer_files import ViewerFiles


@dataclass(frozen=True)
class RehearsalRequest:
    """One call of ``gonogo rehearse``.

    ``command`` is what the user would launch, word by word. ``gpus`` and ``host_memory`` are as typed
    (``8xH100-80G``, ``1T``), ``ranks`` is ``auto``, ``0``, ``0,3``, ``sample`` or ``all``, ``timeout`` is in seconds
    and counts for the whole rehearsal. ``environment`` is a file of versions, ``with_packages`` are ``NAME==VERSION``,
    ``as_of`` is the day (``2023-11-02``) whose releases count where versions are loose. ``ray`` is
    the address of a Ray cluster (or ``auto``) on which the ranks run; None: they run here.
    ``count_work``: the first rank counts what it computes and moves. ``only_looks``: the first rank alone, up to its
    first batch. ``viewers``: files to write for viewers.
    ``as_installed``: with the packages that are installed, whatever ``gonogo prepare`` has found for the folder.
    ``life``: the stages of a run's life that are rehearsed; empty for one life. ``resume_on`` is the machine of the
    second life, ``resume_with`` what its command has besides.
    ``env``: variables beside those that a launch needs, as ``NAME`` or ``NAME=VALUE`` (``confinement/variables.py``).
    """

    command: list[str]
    gpus: str | None = None
    nodes: int | None = None
    host_memory: str | None = None
    ranks: str = "0"
    steps: int = 2
    timeout: float = 600.0
    environment: Path | None = None
    with_packages: tuple[str, ...] = ()
    as_of: str | None = None
    keep: Path | None = None
    viewers: ViewerFiles = field(default_factory=ViewerFiles)
    ray: str | None = None
    count_work: bool = False
    only_looks: bool = False
    every: bool = False
    """Run each micro-batch of gradient accumulation."""
    as_installed: bool = False
    unconfined: bool = False
    """Run the programs without anything that keeps them from the user's files, where the kernel offers no means."""
    env: tuple[str, ...] = ()
    life: tuple[str, ...] = ()
    resume_on: str | None = None
    resume_with: str | None = None
    kill_between_writes: bool = False
    """Try each moment of the save at which the first life may be killed."""
    stage_commands: StageCommands = field(default_factory=StageCommands)
    """Of the stages after the lives."""
    yes: bool = False
    """What the project's files ask for may be installed into gonogo's own folder; else the user is asked, once."""
    shm_bytes: int | None = None
    """A node's /dev/shm, where what the command was taken from says it."""


def in_prepared_environment(request: RehearsalRequest, folder: Path) -> RehearsalRequest:
    """The request with the packages that were prepared for launches typed in a folder, unless it says others."""
    if request.environment == AS_INSTALLED:
        return replace(request, environment=None, as_installed=True)
    parent = parent_of_prepared(folder)
    table = read_prepared(parent / FOLDER)
    if table is None or not table.environment or request.environment is not None or request.as_installed:
        return request
    place = Path(FOLDER) if parent == folder else parent / FOLDER
    file = Path(os.path.normpath(place / table.environment))  # an absolute one stays as it is
    if not (folder / file).is_file():
        return request
    with_packages = (*table.with_packages, *request.with_packages)
    return replace(request, environment=file, as_of=request.as_of or table.as_of, with_packages=with_packages)
