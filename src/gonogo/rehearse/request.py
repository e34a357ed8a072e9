"""The options of ``gonogo rehearse`` as they were given."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from gonogo.evidence.prepared import FOLDER, parent_of_prepared, read_prepared
from gonogo.finding import UserError, translated
from gonogo.prepare.provided_files import AS_INSTALLED
from gonogo.rehearse.lives import StageCommands
from gonogo.rehearse.viewer_files import ViewerFiles


@dataclass(frozen=True)
class RehearsalRequest:
    """One call of ``gonogo rehearse``.

    ``command`` is the user's launch, as words. ``gpus`` and ``host_memory`` are as typed (``8xH100-80G``, ``1T``),
    ``ranks`` is ``auto``, ``0``, ``0,3``, ``sample`` or ``all``, ``timeout`` is in seconds for the whole rehearsal.
    ``environment`` is a file of versions, ``with_packages`` are ``NAME==VERSION``, ``as_of`` is the date
    (``2023-11-02``) whose releases are used for versions that aren't pinned. ``ray`` is the address of a Ray cluster
    (or ``auto``) on which the ranks run, None for this machine. ``count_work``: measure what the first rank computes
    and moves. ``probe_only``: run only the first rank, up to its first batch. ``viewers``: files to write for
    viewers. ``as_installed``: use the installed packages, whatever ``gonogo prepare`` has prepared. ``life``: the
    stages to rehearse; empty for a plain rehearsal. ``resume_on`` is the machine of the second life, ``resume_with``
    are further options of its command. ``env``: variables besides those that a launch needs, as ``NAME`` or
    ``NAME=VALUE`` (``confinement/variables.py``).
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
    probe_only: bool = False
    every: bool = False
    """Run each micro-batch of gradient accumulation."""
    as_installed: bool = False
    unconfined: bool = False
    """Run the programs without protection of the user's files if the kernel supports none."""
    env: tuple[str, ...] = ()
    life: tuple[str, ...] = ()
    resume_on: str | None = None
    resume_with: str | None = None
    kill_between_writes: bool = False
    """Try a resume for each moment of the save at which the first life may be killed."""
    saves: int = 1
    """How many saves the first life makes before it is killed."""
    disk: str | None = None
    """The free disk space for checkpoints, and how fast they are written, as typed: ``2T``, ``2T@500M``."""
    signal: str | None = None
    """The signal that the first life gets, as typed: ``USR1@120``; also if the job's script asks for it."""
    stage_commands: StageCommands = field(default_factory=StageCommands)
    """The commands of the stages after the two lives."""
    yes: bool = False
    """Install what the project's files require into gonogo's own folder without asking the user once."""
    shm_bytes: int | None = None
    """The size of a node's /dev/shm, if the job file states it."""


def in_prepared_environment(request: RehearsalRequest, folder: Path) -> RehearsalRequest:
    """The request with the packages that were prepared for launches from a folder, unless it specifies others."""
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


def check_encodable(command: Sequence[str]) -> None:
    """Raise UserError for a word that can't be passed on: not UTF-8, or with a zero byte."""
    for word in command:
        printable = word.encode("utf-8", "backslashreplace").decode()
        if printable != word or "\0" in word:
            raise UserError(
                translated("{word!r} in the command is not valid UTF-8: rename the file, or remove it").format(
                    word=printable
                )
            )
