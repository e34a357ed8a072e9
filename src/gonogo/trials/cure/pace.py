"""The seconds of one optimizer step by plan's roofline, of a run that was rehearsed."""

from __future__ import annotations

from gonogo.evidence.rehearsal.record import RehearsalRecord


def seconds_of_step(record: RehearsalRecord) -> float | None:
    """Seconds of the last whole step; None where the rehearsal did not come to one."""
    return None
