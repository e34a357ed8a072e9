"""What the guard of a live training saw, rank by rank, as facts with no judgement.

Every rank appends :mod:`records <gonogo.evidence.guarded.records>` to ``<folder>/rank-<RANK>.jsonl``. They are read
back into a :class:`GuardedRun`, however far the rank came.
"""

from __future__ import annotations

import msgspec

from gonogo.evidence.guarded.launch import ChildExit, LaunchRecord
from gonogo.evidence.guarded.records import (
    Compared,
    End,
    ExceptionRecord,
    Fault,
    JoinRecord,
    NonFinite,
    Phase,
    PlacementSnapshot,
    StallEndRecord,
    StallRecord,
    StartRecord,
    Step,
    Thread,
    WarningRecord,
)


class Heartbeat(msgspec.Struct, frozen=True):
    """The last sign of life of a rank, which outlives even SIGKILL."""

    time: float
    step: int
    phase: Phase
    collectives: int
    """How many collectives it had called in all."""
    inside: bool
    """Whether it was within a collective."""
    pid: int = 0


class StackDump(msgspec.Struct, frozen=True):
    """Where a rank was when a signal ended it, from Python's fault handler: even where it waited in C."""

    time: float
    error: str
    """``Segmentation fault``, ``Aborted`` …; empty for SIGTERM."""
    threads: tuple[Thread, ...]
    """The main thread first."""


class GuardedRank(msgspec.Struct):
    """All that one rank's guard wrote."""

    rank: int
    start: StartRecord | None = None
    joined: JoinRecord | None = None
    compared: Compared | None = None
    placements: list[PlacementSnapshot] = []
    steps: list[Step] = []
    warnings: list[WarningRecord] = []
    stalls: list[StallRecord] = []
    resumed: list[StallEndRecord] = []
    nonfinite: list[NonFinite] = []
    exceptions: list[ExceptionRecord] = []
    faults: list[Fault] = []
    end: End | None = None
    beat: Heartbeat | None = None
    dump: StackDump | None = None
    unreadable: int = 0
    """Lines that could not be read: the last one of a rank that was killed while it wrote, or from another version."""
    path: str = ""
    """The file that the records stand in."""
    earlier: list[GuardedRank] = []
    """The rank before the launcher restarted it, once for every restart."""

    @property
    def last_step(self) -> int:
        """The last optimizer step that is known of."""
        return max([*(step.step for step in self.steps), *([self.beat.step] if self.beat else []), 0])

    @property
    def last_time(self) -> float:
        """When the rank was last heard of; 0 for one that never was."""
        records = (self.start, self.joined, self.compared, self.end, self.beat)
        times = [one.time for one in records if one is not None]
        for several in (self.placements, self.steps, self.warnings, self.stalls, self.exceptions, self.faults):
            times += [one.time for one in several]
        return max(times, default=0.0)


class GuardedRun(msgspec.Struct):
    """A guarded run: its ranks, and what the parent knows of the command."""

    folder: str
    ranks: list[GuardedRank] = []
    command: list[str] = []
    exit_status: int | None = None
    """Of the command, as a shell has it (128 and more for a signal); None where the parent did not live to see it."""
    started: float = 0.0
    ended: float = 0.0
    launches: list[LaunchRecord] = []
    """The command as ``gonogo run`` saw it, one for each node."""
    children: list[ChildExit] = []
    """Processes that launchers saw end, the earliest first."""

    @property
    def world_size(self) -> int:
        """As the ranks state it."""
        return max([rank.start.world_size for rank in self.ranks if rank.start is not None], default=len(self.ranks))

    def rank(self, number: int) -> GuardedRank | None:
        """The rank of that number, or None where it left nothing."""
        return next((rank for rank in self.ranks if rank.rank == number), None)
