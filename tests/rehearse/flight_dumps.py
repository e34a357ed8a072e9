"""What PyTorch's own analyzer makes of the dumps of a rehearsal's ranks, beside what gonogo says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch.distributed.flight_recorder.components.builder import build_db
from torch.distributed.flight_recorder.components.config_manager import JobConfig
from torch.distributed.flight_recorder.components.loader import read_dir

from gonogo.evidence.rehearsal.record import RehearsalRecord
from gonogo.finding.divergence import Divergence


def parted(folder: Path) -> list[Any]:
    """The collectives at which the analyzer finds the ranks apart."""
    arguments = JobConfig().parse_args([str(folder)])
    details, version = read_dir(arguments)
    found = build_db(details, arguments, version).collectives
    return [one for one in found if one.missing_ranks or one.mismatch_collectives]


def looks_alike(divergence: Divergence) -> bool:
    """Whether ranks part in what a dump has no field for: the parameters that ZeRO gathers, the reduction, the root.

    The analyzer then finds nothing, or parts the same ranks at a later call.
    """
    calls = [side.call for side in divergence.sides if side.call is not None]
    seen = {(call.group, call.index, call.operator, call.sizes, call.dtype) for call in calls}
    return len(calls) == len(divergence.sides) and len(seen) == 1


def told_otherwise(record: RehearsalRecord, folder: Path) -> str | None:
    """How the analyzer's answer differs from gonogo's; None where it names the same ranks, at the same lines."""
    found = parted(folder)
    divergence = record.divergence
    if divergence is None:  # a rank that has failed is missing in what the others still call
        ended = {rank.rank for rank in record.ranks if rank.outcome != "completed"}
        wrong = [one for one in found if not set(one.missing_ranks or ()) <= ended or one.mismatch_collectives]
        return f"the analyzer parts ranks: {wrong}" if wrong else None
    sides = [set(side.ranks) for side in divergence.sides]
    lines = set()
    for one in found:
        apart = set(one.missing_ranks or ()) | set(one.mismatch_collectives or ())
        if apart not in sides and one.expected_ranks - apart not in sides:
            return f"the analyzer parts {apart} of {one.expected_ranks}, gonogo {sides}"
        stacks = [one.collective_frames, *(m.collective_frames for m in (one.mismatch_collectives or {}).values())]
        lines |= {(frame["filename"], frame["line"]) for stack in stacks for frame in stack}
    ours = {(frame.path, frame.line) for side in divergence.sides if side.call for frame in side.call.frames}
    return (
        None
        if lines & ours or looks_alike(divergence)
        else f"the analyzer names {sorted(lines)}, gonogo {sorted(ours)}"
    )
