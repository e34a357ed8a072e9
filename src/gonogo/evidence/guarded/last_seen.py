"""The collectives and the position of a guarded rank, from its last record."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from gonogo.evidence.guarded.ends import fatal_exception, is_stalled
from gonogo.evidence.guarded.guarded_run import GuardedRank, GuardedRun
from gonogo.evidence.guarded.records import CalledCollective, Phase
from gonogo.finding.frame import Frame

POINT_TO_POINT_OPERATIONS = frozenset(
    {"send", "recv", "isend", "irecv", "batch_isend_irecv", "send_object_list", "recv_object_list"}
)
"""Operations between two ranks."""


class LastCollectives(msgspec.Struct, frozen=True):
    """The collectives that a rank had called when it wrote its last record."""

    rank: int
    collectives: tuple[CalledCollective, ...]
    counts: dict[str, int]
    frames: tuple[Frame, ...]
    """The stack of its main thread."""
    module: str | None
    phase: Phase
    step: int
    ended: bool
    """Whether it finished normally, so that it will make no further calls."""
    queued: dict[str, int] = {}
    """The number of collectives counted by each process group, including C++ calls such as DDP's gradients."""

    @property
    def pending(self) -> CalledCollective | None:
        """The collective in which it waits, or None."""
        last = self.collectives[-1] if self.collectives else None
        return last if last is not None and not last.returned else None

    def collectives_called(self, group: str) -> int:
        """The number of collectives that it has called in a group."""
        called = [one.index + 1 for one in self.collectives if one.group == group]
        return max([self.counts.get(group, 0), *called])

    def nth_call(self, group: str, index: int) -> CalledCollective | None:
        """The rank's n-th collective in a group, if that is among the recorded ones."""
        return next((one for one in self.collectives if one.group == group and one.index == index), None)


def last_collectives_by_rank(run: GuardedRun) -> dict[int, LastCollectives]:
    """The last collectives of each rank; ranks without such a record are left out."""
    return {rank.rank: one for rank in run.ranks if (one := last_collectives_of(rank)) is not None}


def last_collectives_of(rank: GuardedRank) -> LastCollectives | None:
    """The collectives from the rank's exception, last stall, stack dump or end, whichever applies, or None."""
    raised = fatal_exception(rank)
    stall = rank.stalls[-1] if rank.stalls and is_stalled(rank) else None
    end = rank.end
    step = rank.last_step
    if raised is not None and (stall is None or raised.time > stall.time):
        if not raised.counts and not raised.collectives and stall is not None:
            raised = None
        else:
            calls = raised.collectives
            return LastCollectives(
                rank.rank, calls, raised.counts, raised.frames, raised.module, raised.phase, step, False
            )
    if stall is not None:
        main = stall.threads[0].frames if stall.threads else ()
        queued = {queue.group: queue.enqueued for queue in stall.queues}
        return LastCollectives(
            rank.rank, stall.collectives, stall.counts, main, stall.module, stall.phase, stall.step, False, queued
        )
    if rank.dump is not None and (end is None or end.reason == "signal"):
        main = rank.dump.threads[0].frames if rank.dump.threads else ()
        return LastCollectives(rank.rank, (), {}, main, None, "between", step, False)
    if end is not None:
        well = end.reason == "exit" and not end.status
        return LastCollectives(rank.rank, end.collectives, end.counts, end.frames, None, "exit", end.step, well)
    return None


def members_of(last_collectives: dict[int, LastCollectives], group: str) -> tuple[int, ...]:
    """The global ranks of a group; all known ranks if no recorded call states them."""
    for one in last_collectives.values():
        for call in one.collectives:
            if call.group == group and call.ranks:
                return call.ranks
    return tuple(last_collectives)


def collective_in_progress(
    collectives: LastCollectives, last_collectives: dict[int, LastCollectives]
) -> CalledCollective | None:
    """The collective that a rank's stack is in, or None."""
    if collectives.pending is not None:
        return collectives.pending
    inside = next(
        (f for f in reversed(collectives.frames) if f.path.endswith("torch/distributed/distributed_c10d.py")), None
    )
    found = infer_native_collective(collectives, last_collectives)
    outside = tuple(frame for frame in collectives.frames if frame.owner != "torch")
    if inside is not None:
        return replace(found, operator=inside.function, frames=outside)
    return replace(found, frames=outside) if found.operator == "all_reduce" else None


def infer_native_collective(
    collectives: LastCollectives, last_collectives: dict[int, LastCollectives], group: str = "", index: int = 0
) -> CalledCollective:
    """A collective called from C++ (DDP's gradient reduction), inferred from the rank's Python stack alone."""
    in_backward = any(frame.function == "_engine_run_backward" for frame in collectives.frames)
    return CalledCollective(
        "all_reduce" if in_backward else "a collective of torch's own",
        group,
        members_of(last_collectives, group) if group else tuple(sorted(last_collectives)),
        index,
        frames=collectives.frames,
        phase="backward" if in_backward else collectives.phase,
        step=collectives.step,
    )
