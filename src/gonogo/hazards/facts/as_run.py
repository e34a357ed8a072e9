"""What actually ran, for hazards that compare it with what was requested."""

from __future__ import annotations

from gonogo.evidence.rehearsal.record import RankRecord, RehearsalRecord
from gonogo.finding.as_run import AsRun


def ranks_with_completed_steps(record: RehearsalRecord) -> list[tuple[RankRecord, AsRun]]:
    """Ranks that completed an optimizer step, with what each of them ran: what is missing there was never done."""
    return [(rank, rank.as_run) for rank in record.ranks if rank.steps > 0 and rank.as_run is not None]
