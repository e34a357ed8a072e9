"""What actually ran, for hazards that compare it with what was requested."""

from __future__ import annotations

from gonogo.evidence.rehearsal.record import RankRecord, RehearsalRecord
from gonogo.finding.as_run import AsRun


def facts_of_ranks_with_steps(record: RehearsalRecord) -> list[tuple[RankRecord, AsRun]]:
    """Ranks that completed an optimizer step, with the facts observed in each."""
    return [(rank, rank.as_run) for rank in record.ranks if rank.steps > 0 and rank.as_run is not None]
