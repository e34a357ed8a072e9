"""The input of a worker: the program, its place in the world, the machine, and where the record is written."""

from __future__ import annotations

import os
from typing import Literal

import msgspec

from gonogo.evidence.environment.hardware import Accelerator
from gonogo.evidence.rehearsal.lives import LifePart
from gonogo.evidence.rehearsal.record import ConfinementKind

SPAWN = "torch.multiprocessing.spawn"
"""The launcher's name if a program spawns its own processes, with that function or with torchrun's agent."""
LIGHTNING = "Lightning"
"""The launcher's name if the program is started again for each further rank, by Lightning's strategies."""
PROCESS = "multiprocessing.Process"
"""The launcher's name if the program starts a process for each rank, followed by a colon and the function they run."""
MODULE_LISTING_SUFFIX = "/././"
"""Appended to a folder's path when Python's import system lists it, which only looks for modules."""


def is_programs_own(launcher: str) -> bool:
    """Whether it is the program itself: how many ranks there are is known once it is about to start them."""
    return launcher in (SPAWN, LIGHTNING) or bool(target_of_processes(launcher))


def target_of_processes(launcher: str) -> str:
    """The function that the program's own processes run; empty if it starts none in this way."""
    starter, _, target = launcher.partition(": ")
    return target if starter == PROCESS else ""


def lightning_variables(local_rank: int, count: int) -> dict[str, str]:
    """The variables that Lightning sets for a rank of one node, by which it knows that it need not start others."""
    return {
        "MASTER_ADDR": os.environ.get("MASTER_ADDR", "127.0.0.1"),
        "MASTER_PORT": os.environ.get("MASTER_PORT", "29500"),
        "NODE_RANK": "0",
        "LOCAL_RANK": str(local_rank),
        "WORLD_SIZE": str(count),
    }


class ExchangeAddress(msgspec.Struct, frozen=True):
    """How a worker connects to the other ranks that are rehearsed with it."""

    address: str
    """``HOST:PORT`` for a worker on another machine; empty for one that inherits its socket."""
    key: str
    """Shared secret by which the exchange and the worker authenticate each other."""
    ranks: tuple[int, ...]
    """The ranks that are rehearsed together."""


EXCHANGE_DESCRIPTOR = 197
"""The file descriptor of a worker's socket to the exchange."""


class WorkerPlan(msgspec.Struct, frozen=True):
    """Written as JSON by the parent; read by ``python -m gonogo.virtual PLAN``."""

    program_kind: Literal["script", "module"]
    """``script``: a path to run as ``python PATH``; ``module``: a name to run as ``python -m NAME``."""
    program: str
    arguments: tuple[str, ...]
    rank: int
    local_rank: int
    world_size: int
    local_world_size: int
    accelerator: Accelerator
    host_bytes: int | None
    steps: int
    scratch: str
    """A temporary folder of gonogo's that this worker shares with others, for generated files and notes."""
    record: str
    """Where the RankRecord's JSON is written (atomically), also after a failure or SIGINT/SIGTERM."""
    progress: str
    """A file to which a :class:`Progress` JSON line is appended about twice a second."""
    trace_autograd: bool = False
    """Record where every autograd node was created (slow): for repeating a run whose backward failed."""
    devices: int = 0
    """Accelerators of the node (``CUDA_VISIBLE_DEVICES`` may show fewer); 0 means ``local_world_size``."""
    started_by_program: bool = False
    """True if this rank is a process that the program starts itself (see ``virtual/ranks/spawned_ranks.py``)."""
    process_target: str = ""
    """The function of which this rank runs one, if the program starts a ``multiprocessing.Process`` for each."""
    counts_work: bool = False
    """Count FLOPs and memory traffic (slower)."""
    every: bool = False
    """Run every micro-batch, including those that would only repeat the previous one."""
    to_the_end: bool = False
    """Read the data to its end if that is cheap."""
    probe_only: bool = False
    """Only record the shapes of the batches that each rank will read, and stop at the first data loader; if the shapes
    of generated files were inferred, run a step, which shows whether they are right."""
    prepared: str = ""
    """The folder created by gonogo prepare, or empty."""
    trace: str = ""
    """Path for the event trace (:class:`RankTrace`), or empty if none is recorded."""
    required_python: str = ""
    """Which versions of Python the project allows, as a specifier; empty where it says nothing."""
    life: LifePart = ""
    """Which of a run's two lives this is, if its save and resume are rehearsed."""
    saves: int = 1
    """How many saves the first life makes before it is killed."""
    signal: int = 0
    """The signal that the first life gets after its steps; 0 for none."""
    signal_reaches: bool = True
    """Whether the launcher passes it on."""
    written_folders: tuple[str, ...] = ()
    """Folders to which the run itself has written before: weights that are missing there have not been saved."""
    exchange: ExchangeAddress | None = None
    """None if one rank is rehearsed alone."""
    confinement: ConfinementKind = "namespaces"
    """How the kernel confines the program: whether its writes are discarded, refused, or really made."""


class Progress(msgspec.Struct, frozen=True):
    """The current activity of a worker, for the live display."""

    rank: int
    phase: str
    step: int
    operators: int
    device_bytes: int
    host_bytes: int
    activity: str
    """Module or call being run, e.g. ``model.layers.3`` or ``from_pretrained``."""
    stuck: bool = False
    """Whether all of its threads have been waiting for some time."""
    failure: str = ""
    """The exception that ended a first pass; the second pass finds the forward call that it comes from."""
