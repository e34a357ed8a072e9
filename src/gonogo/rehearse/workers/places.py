"""Where the ranks of a rehearsal run: on this machine, or on a Ray cluster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from gonogo.evidence.rehearsal.record import RankRecord
from gonogo.rehearse.workers.pool import OnRanks, Pool
from gonogo.rehearse.workers.workers import Assignment, run_workers


class LocalPool:
    """Processes of this machine."""

    host = None

    def run(self, assignments: Sequence[Assignment], deadline: float, on_progress: OnRanks) -> list[RankRecord]:
        """As ``run_workers``."""
        return run_workers(assignments, deadline, on_progress)


@contextmanager
def pool_for(ray: str | None) -> Iterator[Pool]:
    """The pool that ``--ray`` names. Raises UserError where there is no such cluster."""
    if ray is None:
        yield LocalPool()
        return
    from gonogo.rehearse.workers.ray_cluster import connected

    with connected(ray) as pool:
        yield pool
