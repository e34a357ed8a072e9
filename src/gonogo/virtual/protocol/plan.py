"""What a worker is told: the program, its place in the world, the machine, and where the record goes."""

from __future__ import annotations

from typing import Literal

import msgspec

from gonogo.evidence.environment.hardware import Accelerator
from gonogo.evidence.rehearsal.lives import LifePart
from gonogo.evidence.rehearsal.record import ConfinementKind

SPAWN = "torch.multiprocessing.spawn"
"""The launcher of processes that a program starts itself, by that or by torchrun's agent."""
MODULE_LISTING_SUFFIX = "/././"
"""At the end of a folder's path: Python's import system lists it, which asks for modules only."""


class ExchangeAddress(msgspec.Struct, frozen=True):
    """Where a worker meets the other ranks that are rehearsed with it."""

    address: str
    """``HOST:PORT`` for a worker on another machine; empty for one that is handed its end of the line."""
    key: str
    """What proves to the exchange, and to the worker, that the other side belongs to this rehearsal."""
    ranks: tuple[int, ...]
    """The ranks that are rehearsed together."""


EXCHANGE_DESCRIPTOR = 197
"""The descriptor under which a worker finds its end of the line to the exchange."""


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
    """A folder of gonogo's in which this worker, and those that share it, leave what they have made or noted."""
    record: str
    """Where the RankRecord's JSON is written (atomically), also after a failure or SIGINT/SIGTERM."""
    progress: str
    """A file to which a :class:`Progress` JSON line is appended about twice a second."""
    trace_autograd: bool = False
    """Note where every autograd node was made: slower; for a run that repeats one whose backward failed."""
    devices: int = 0
    """Accelerators of the node (``CUDA_VISIBLE_DEVICES`` may show fewer); 0: as many as ``local_world_size``."""
    started_by_program: bool = False
    """Whether this rank is a process that the program starts itself (see ``virtual/starting.py``)."""
    counts_work: bool = False
    """Count what it computes and moves: slower."""
    every: bool = False
    """Run each micro-batch, those too that would only repeat the one before."""
    to_the_end: bool = False
    """Read the data on to its own end, where that costs little."""
    only_looks: bool = False
    """Only look at what batches each rank will read, and end with the first of its own."""
    prepared: str = ""
    """The folder of what gonogo prepare has made; empty where there is none."""
    trace: str = ""
    """Where what it does is written event by event (:class:`RankTrace`); empty: it is not followed."""
    required_python: str = ""
    """Which versions of Python the project allows, as a specifier; empty where it says nothing."""
    life: LifePart = ""
    """Which of a run's two lives it is, where they are rehearsed."""
    written_folders: tuple[str, ...] = ()
    """Where the run itself has written before: weights that are not there have not been saved."""
    exchange: ExchangeAddress | None = None
    """None where one rank is rehearsed alone."""
    confinement: ConfinementKind = "namespaces"
    """What the kernel confines the program by: what it writes is thrown away, refused, or really written."""


class Progress(msgspec.Struct, frozen=True):
    """What a worker is doing now, for the live display."""

    rank: int
    phase: str
    step: int
    operators: int
    device_bytes: int
    host_bytes: int
    activity: str
    """Module or call being run, e.g. ``model.layers.3`` or ``from_pretrained``."""
    failure: str = ""
    """The exception that a first pass ended in; the second one looks for the forward that it comes from."""
