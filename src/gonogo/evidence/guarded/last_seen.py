"""What the last record of a guarded rank tells of its collectives and of where it stood."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from gonogo.evidence.guarded.ends import fatal_exception, stands
from gonogo.evidence.guarded.guarded_run import GuardedRank, GuardedRun
from gonogo.evidence.guarded.records import CalledCollective, Phase
from gonogo.finding.frame import Frame

POINT_TO_POINT_OPERATIONS = frozenset(
    {"send", "recv", "isend", "irecv", "batch_isend_irecv", "send_object_list", "recv_object_list"}
)
"""Calls that only two ranks make."""


class LastCollectives(msgspec.Struct, frozen=True):
    """What a rank's last record tells of its collectives."""

    rank: int
    collectives: tuple[CalledCollective, ...]
    counts: dict[str, int]
    frames: tuple[Frame, ...]
    """Where its main thread was."""
    module: str | None
    phase: Phase
    step: int
    ended: bool
    """Whether it has ended well, and so never comes to anything again."""
    queued: dict[str, int] = {}
    """How many collectives each process group has counted, those among them that C++ makes: DDP's of gradients."""

    @property
    def pending(self) -> CalledCollective | None:
        """The collective in which it waits, or None."""
        last = self.collectives[-1] if self.collectives else None
        return last if last is not None and not last.returned else None

    def collectives_called(self, group: str) -> int:
        """How many collectives it has called in a group."""
        called = [one.index + 1 for one in self.collectives if one.group == group]
        return max([self.counts.get(group, 0), *called])

    def call(self, group: str, index: int) -> CalledCollective | None:
        """Its n-th collective in a group, where that is among the last."""
        return next((one for one in self.collectives if one.group == group and one.index == index), None)


def last_collectives_by_rank(run: GuardedRun) -> dict[int, LastCollectives]:
    """What is known of each rank, by its number; ranks that left nothing of the kind are left out."""
    return {rank.rank: one for rank in run.ranks if (one := last_collectives_of(rank)) is not None}


def last_collectives_of(rank: GuardedRank) -> LastCollectives | None:
    """What the rank's exception, its last stall, the dump of its stacks or its end tells; None where there is none."""
    raised = fatal_exception(rank)
    stall = rank.stalls[-1] if rank.stalls and stands(rank) else None
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
    """The global ranks of a group; all that are known where no call of it is."""
    for one in last_collectives.values():
        for call in one.collectives:
            if call.group == group and call.ranks:
                return call.ranks
    return tuple(last_collectives)


def collective_in_progress(
    collectives: LastCollectives, last_collectives: dict[int, LastCollectives]
) -> CalledCollective | None:
    """The collective in which a stack stands, or None."""
    if collectives.pending is not None:
        return collectives.pending
    inside = next(
        (f for f in reversed(collectives.frames) if f.path.endswith("torch/distributed/distributed_c10d.py")), None
    )
    found = unnamed(collectives, last_collectives)
    outside = tuple(frame for frame in collectives.frames if frame.owner != "torch")
    if inside is not None:
        return replace(found, operator=inside.function, frames=outside)
    return replace(found, frames=outside) if found.operator == "all_reduce" else None


def unnamed(
    collectives: LastCollectives, last_collectives: dict[int, LastCollectives], group: str = "", index: int = 0
) -> CalledCollective:
    """A collective that C++ makes, such as DDP's of gradients: known by where the rank stands alone."""
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
