"""What a rehearsal is asked for: the command line's options, as they were given."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from gonogo.rehearse.viewer_files import ViewerFiles


@dataclass(frozen=True)
class RehearsalRequest:
    """One call of ``gonogo rehearse``.

    ``command`` is what the user would launch, word by word. ``gpus`` and ``host_memory`` are as typed
    (``8xH100-80G``, ``1T``), ``ranks`` is ``auto``, ``0``, ``0,3``, ``sample`` or ``all``, ``timeout`` is in seconds
    and counts for the whole rehearsal. ``environment`` is a file of versions, ``with_packages`` are ``NAME==VERSION``,
    ``as_of`` is the day (``2023-11-02``) whose releases count where versions are loose. ``ray`` is
    the address of a Ray cluster (or ``auto``) on which the ranks run; None: they run here.
    ``count_work``: the first rank counts what it computes and moves. ``use_cache``: take the record of an earlier
    rehearsal of the same, and keep this one's. ``only_looks``: the first rank alone, up to its first batch.
    ``viewers``: files to write for viewers.
    ``as_installed``: with the packages that are installed, whatever ``gonogo prepare`` has found for the folder.
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
    use_cache: bool = True
    only_looks: bool = False
    every: bool = False
    """Run each micro-batch of gradient accumulation."""
    as_installed: bool = False
    unconfined: bool = False
    """Run the programs without anything that keeps them from the user's files, where the kernel offers no means."""
    env: tuple[str, ...] = ()
    yes: bool = False
    """What the project's files ask for may be installed into gonogo's own folder; else the user is asked, once."""
    shm_bytes: int | None = None
    """A node's /dev/shm, where what the command was taken from says it."""
