"""A program that is started as one process, and starts those that train itself: the launch that it comes to.

That is known once it comes to ``torch.multiprocessing.spawn`` or ``elastic_launch``: its worker ends there, and says
how many.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from msgspec.structs import replace

from gonogo.evidence.paths import contents
from gonogo.evidence.rehearsal.record import RankRecord
from gonogo.finding import Text
from gonogo.rehearse.launch.launch import ResolvedLaunch
from gonogo.virtual.protocol.plan import SPAWN


def may_start_processes(launch: ResolvedLaunch) -> bool:
    """Whether a program that is started alone speaks of starting others (one that is not, or not by its name, may)."""
    if launch.world_size > 1 or launch.program_kind != "script":
        return False
    try:
        source = contents(os.path.join(launch.cwd, launch.program))
    except OSError:
        return False
    return any(word in source for word in (b"spawn", b"start_processes", b"elastic_launch", b"notebook_launcher"))


def started_by(records: Sequence[RankRecord], launch: ResolvedLaunch) -> int | None:
    """How many processes the only process of a launch was about to start, or None."""
    return records[0].starts_processes if launch.world_size == 1 and launch.launcher != SPAWN else None


def as_ranks(launch: ResolvedLaunch, count: int) -> ResolvedLaunch:
    """The launch whose ranks are the processes that the program starts, on the machine that it runs on."""
    (alone,) = launch.processes
    note = Text(
        "the program starts {count} process(es) itself: each is a rank; what it does once they have ended was not run",
        "程序自己启动 {count} 个进程：每个都是一个 rank；它们结束之后程序还会做什么，没有运行",
    ).format(count=count)
    return replace(
        launch,
        launcher=SPAWN,
        processes=tuple(
            replace(alone, rank=rank, local_rank=rank, world_size=count, local_world_size=count)
            for rank in range(count)
        ),
        notes=(*launch.notes, note),
    )
