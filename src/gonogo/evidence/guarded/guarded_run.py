"""The observations of the guard of a live training, rank by rank, without judgement.

Every rank appends :mod:`records <gonogo.evidence.guarded.records>` to ``<folder>/rank-<RANK>.jsonl``. They are read
back into a :class:`GuardedRun`, regardless of how far the rank got.
"""

from __future__ import annotations

import msgspec

from gonogo.evidence.guarded.launch import ChildExit, LaunchRecord
from gonogo.evidence.guarded.records import (
    EndRecord,
    ExceptionRecord,
    GuardFaultRecord,
    JoinRecord,
    NonFiniteRecord,
    Phase,
    PlacementSnapshot,
    RankComparisonRecord,
    StallEndRecord,
    StallRecord,
    StartRecord,
    StepRecord,
    ThreadStack,
    WarningRecord,
)


class Heartbeat(msgspec.Struct, frozen=True):
    """The last heartbeat of a rank, which is kept even after SIGKILL."""

    time: float
    step: int
    phase: Phase
    collectives: int
    """The number of collectives called so far."""
    inside: bool
    """Whether it was inside a collective."""
    pid: int = 0


class StackDump(msgspec.Struct, frozen=True):
    """The stacks of a rank that was ended by a signal, from Python's fault handler, even if blocked in C code."""

    time: float
    error: str
    """``Segmentation fault``, ``Aborted`` …; empty for SIGTERM."""
    threads: tuple[ThreadStack, ...]
    """The main thread first."""


class GuardedRank(msgspec.Struct):
    """All records of one rank's guard."""

    rank: int
    start: StartRecord | None = None
    joined: JoinRecord | None = None
    compared: RankComparisonRecord | None = None
    placements: list[PlacementSnapshot] = []
    steps: list[StepRecord] = []
    warnings: list[WarningRecord] = []
    stalls: list[StallRecord] = []
    resumed: list[StallEndRecord] = []
    nonfinite: list[NonFiniteRecord] = []
    exceptions: list[ExceptionRecord] = []
    faults: list[GuardFaultRecord] = []
    end: EndRecord | None = None
    beat: Heartbeat | None = None
    dump: StackDump | None = None
    unreadable: int = 0
    """Number of unreadable lines: the last line of a rank killed while writing, or lines of another release."""
    path: str = ""
    """The file with the records."""
    earlier: list[GuardedRank] = []
    """The records of this rank before each restart by the launcher."""

    @property
    def last_step(self) -> int:
        """The last known optimizer step."""
        return max([*(step.step for step in self.steps), *([self.beat.step] if self.beat else []), 0])

    @property
    def last_time(self) -> float:
        """The time of the last sign of life; 0 if there is none."""
        records = (self.start, self.joined, self.compared, self.end, self.beat)
        times = [one.time for one in records if one is not None]
        for several in (self.placements, self.steps, self.warnings, self.stalls, self.exceptions, self.faults):
            times += [one.time for one in several]
        return max(times, default=0.0)


class GuardedRun(msgspec.Struct):
    """A run under ``gonogo run``: its ranks' records, and those of the process that started the command."""

    folder: str
    ranks: list[GuardedRank] = []
    command: list[str] = []
    exit_status: int | None = None
    """The command's exit status, as in a shell (128 plus a signal's number); None if the parent was killed before."""
    started: float = 0.0
    ended: float = 0.0
    launches: list[LaunchRecord] = []
    """The records of ``gonogo run``, one for each node."""
    children: list[ChildExit] = []
    """Processes whose exit a launcher noticed, the earliest first."""

    @property
    def world_size(self) -> int:
        """The world size stated by the ranks."""
        return max([rank.start.world_size for rank in self.ranks if rank.start is not None], default=len(self.ranks))

    def rank(self, number: int) -> GuardedRank | None:
        """The rank with that number, or None if it left no records."""
        return next((rank for rank in self.ranks if rank.rank == number), None)
