"""The interface of whatever runs the ranks of a rehearsal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from gonogo.evidence.rehearsal.record import RankRecord
from gonogo.rehearse.progress import RankStatus
from gonogo.rehearse.workers.workers import Assignment

OnRanks = Callable[[tuple[RankStatus, ...]], None]


class NodeLost(Exception):
    """A node was lost while connected ranks ran: they can only be run again all together."""

    def __init__(self, records: list[RankRecord]) -> None:
        super().__init__("a node was lost")
        self.records = records
        """What is to be said of the ranks if they are not run again."""


class Pool(Protocol):
    """Runs workers."""

    @property
    def host(self) -> str | None:
        """An address at which workers reach this process by TCP; None if all are on this machine."""

    def run(self, assignments: Sequence[Assignment], deadline: float, on_progress: OnRanks) -> list[RankRecord]:
        """Like :func:`gonogo.rehearse.workers.workers.run_workers`. Raises :class:`NodeLost` for connected ranks."""
