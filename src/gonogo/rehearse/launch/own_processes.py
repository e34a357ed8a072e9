"""Programs that start their ranks themselves: how many processes those are, and the launch with a rank for each."""

from __future__ import annotations

import os
from collections.abc import Sequence

from msgspec.structs import replace

from gonogo.evidence.paths import read_bytes
from gonogo.evidence.rehearsal.record import RankRecord
from gonogo.finding import translated
from gonogo.rehearse.launch.launch import ResolvedLaunch
from gonogo.virtual.protocol.plan import LIGHTNING, is_programs_own, lightning_variables

_WORDS_OF_STARTING = (b"spawn", b"start_processes", b"elastic_launch", b"notebook_launcher", b"lightning", b"Process(")


def may_start_processes(launch: ResolvedLaunch) -> bool:
    """Whether the source of a program without a launcher mentions functions that start processes."""
    if launch.world_size > 1 or launch.program_kind != "script":
        return False
    try:
        source = read_bytes(os.path.join(launch.cwd, launch.program))
    except OSError:
        return False
    return any(word in source for word in _WORDS_OF_STARTING)


def started_process_count(records: Sequence[RankRecord], launch: ResolvedLaunch) -> int | None:
    """How many processes the only process of a launch was about to start, or None."""
    return records[0].starts_processes if launch.world_size == 1 and not is_programs_own(launch.launcher) else None


def processes_as_ranks(launch: ResolvedLaunch, count: int, starter: str) -> ResolvedLaunch:
    """The launch with one rank for each process that the program starts, on the same machine."""
    (alone,) = launch.processes
    if starter == LIGHTNING:
        note = translated("Lightning starts the program again for each further GPU: {count} rank(s)").format(
            count=count
        )
    else:
        note = translated(
            "the program starts {count} process(es) itself, each rehearsed as a rank; what it does after they "
            "end was not rehearsed"
        ).format(count=count)
    return replace(
        launch,
        launcher=starter,
        processes=tuple(
            replace(
                alone,
                rank=rank,
                local_rank=rank,
                world_size=count,
                local_world_size=count,
                environment=alone.environment
                | (lightning_variables(rank, count) if starter == LIGHTNING and rank else {}),
            )
            for rank in range(count)
        ),
        notes=(*launch.notes, note),
    )
