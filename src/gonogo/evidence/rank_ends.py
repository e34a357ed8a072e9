"""How ranks ended, in a common form for rehearsals, guarded runs and logs."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from gonogo.evidence.log.failure_log import FailureLog, span_of_line
from gonogo.evidence.log.role import Role
from gonogo.evidence.rehearsal.chain import ChainedException, exception_chain, logged_exception_chain
from gonogo.evidence.rehearsal.failures import failed_ranks, is_memory_shortage
from gonogo.evidence.rehearsal.record import RehearsalRecord
from gonogo.finding import Span
from gonogo.finding.frame import Frame


class RankFailure(msgspec.Struct, frozen=True):
    """What ended some ranks: the chain of exceptions, root cause first."""

    ranks: tuple[int, ...]
    chain: tuple[ChainedException, ...]
    reading: str | None = None
    """The JSON or YAML file that was being read, if its syntax is the problem."""
    place: Span | None = None
    """The log line that shows the failure."""

    @property
    def frames(self) -> Iterator[Frame]:
        """The frames of all exceptions of the chain."""
        for exception in self.chain:
            yield from exception.frames

    @property
    def message(self) -> str:
        """The messages of all exceptions of the chain."""
        return "\n".join(f"{exception.type}: {exception.message}" for exception in self.chain)


def rank_failures_in_record(record: RehearsalRecord) -> tuple[RankFailure, ...]:
    """The failures of a rehearsal, or of a guarded run in that form: exceptions, and where the ranks diverged.

    Failures that only say that memory ran out are left out: they have a cause of their own.
    """
    ends = [
        RankFailure(failed.ranks, exception_chain(failed.failure), failed.failure.reading)
        for failed in failed_ranks(record)
        if not is_memory_shortage(failed.first, failed.failure)
    ]
    if (divergence := record.divergence) is not None:
        sides = divergence.earlier or divergence.sides
        calls = tuple(ChainedException("", "", side.call.frames) for side in sides if side.call is not None)
        diverged = {rank for side in divergence.sides for rank in side.ranks}
        diverged |= {rank.rank for rank in record.ranks if rank.outcome == "diverged"}
        ends.append(RankFailure(tuple(sorted(diverged)), calls))
    return tuple(ends)


def rank_failures_in_log(log: FailureLog) -> tuple[RankFailure, ...]:
    """The exceptions of a log that aren't a consequence of another one."""
    return tuple(
        RankFailure(error.ranks, logged_exception_chain(error.raised), place=span_of_line(error.raised.at))
        for error in log.errors
        if error.role is Role.ROOT
    )
