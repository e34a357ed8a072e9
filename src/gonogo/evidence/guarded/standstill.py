"""Find which ranks wait for which others in a hang, from their last collectives and the stacks of their threads.

The n-th call of a rank in a group corresponds to the n-th call of the others. The ranks with fewer calls in a group
are those that the others wait for; their stacks show why.
"""

from __future__ import annotations

from collections import defaultdict

import msgspec

from gonogo.evidence.guarded.ends import cached_per_run, fatal_exception, have_all_ranks_joined, is_stalled, rank_deaths
from gonogo.evidence.guarded.guarded_run import GuardedRun
from gonogo.evidence.guarded.last_seen import (
    POINT_TO_POINT_OPERATIONS,
    LastCollectives,
    collective_in_progress,
    infer_native_collective,
    last_collectives_by_rank,
    members_of,
)
from gonogo.evidence.guarded.records import CalledCollective, StallRecord
from gonogo.evidence.patterns import Pattern

_TIMEOUT_PATTERN = Pattern(r"(?i)timed out|time-?out")
_FROZEN_AFTER_SECONDS = 5.0
"""Seconds without a heartbeat after which a rank's Python counts as frozen; there are several heartbeats a second."""


class Hang(msgspec.Struct, frozen=True):
    """A hang: the collective in which ranks wait, and ``late``, the ranks that have not reached it."""

    stalls: dict[int, StallRecord]
    """The last stall record of each rank that reported a stall."""
    seen: dict[int, LastCollectives]
    call: CalledCollective | None
    """The collective in which ranks wait; None if they don't wait in one."""
    waiting: tuple[int, ...] = ()
    late: tuple[int, ...] = ()
    silent: tuple[int, ...] = ()
    """Ranks of the world that don't respond: their Python is blocked, or they never started."""

    @property
    def seconds(self) -> float:
        """The duration of the hang in seconds, as last recorded."""
        waited = self.call.ago if self.call is not None else 0.0
        return max((stall.seconds for stall in self.stalls.values()), default=waited)

    @property
    def median(self) -> float:
        """The median duration of earlier steps in seconds; 0 if there were none."""
        return max((stall.median for stall in self.stalls.values()), default=0.0)


@cached_per_run
def find_hang(run: GuardedRun) -> Hang | None:
    """The hang in which a run is or ended; None if there was none, it resumed, or a rank had failed before."""
    stalls = {rank.rank: rank.stalls[-1] for rank in run.ranks if is_stalled(rank)}
    if not stalls:
        return _hang_by_timeout(run)
    first = [rank.stalls[-1 - stalls[rank.rank].again :][0] for rank in run.ranks if rank.rank in stalls]
    noticed = min(stall.time for stall in first)
    if any(not death.consequence and death.time < noticed for death in rank_deaths(run) if death.rank not in stalls):
        return None
    seen = last_collectives_by_rank(run)
    silent = _silent_ranks(run, stalls)
    call, waiting, late = _find_awaited_collective(seen, silent)
    return Hang(stalls, seen, call, waiting, late, silent)


def _hang_by_timeout(run: GuardedRun) -> Hang | None:
    """A hang in which collectives timed out before a stall was recorded: the ranks that timed out, and the late ones.

    The stacks of the late ranks are from Python's fault handler, written when the launcher ended them.
    """
    over = [rank for rank in run.ranks if (raised := fatal_exception(rank)) and _TIMEOUT_PATTERN.search(raised.message)]
    left = [rank for rank in run.ranks if fatal_exception(rank) is None and rank.dump is not None]
    if not over or len(over) + len(left) < len(run.ranks) or any(not death.consequence for death in rank_deaths(run)):
        return None
    seen = last_collectives_by_rank(run)
    first = seen[over[0].rank]
    if any(collective_in_progress(seen[rank.rank], seen) is not None for rank in left):
        return None
    call = first.pending or infer_native_collective(first, seen)
    waiting, late = (tuple(sorted(rank.rank for rank in some)) for some in (over, left))
    return Hang({}, seen, call, waiting, late) if late else None


def _silent_ranks(run: GuardedRun, stalls: dict[int, StallRecord]) -> tuple[int, ...]:
    """Ranks that belong to the world and have not ended, but recorded nothing about the stall."""
    latest = max(stall.time for stall in stalls.values())
    longest = max(stall.seconds for stall in stalls.values())
    found = []
    for number in range(run.world_size):
        rank = run.rank(number)
        if rank is None:
            if not have_all_ranks_joined(run):
                found.append(number)
        elif number not in stalls and rank.end is None and fatal_exception(rank) is None:
            alive = rank.beat.time if rank.beat is not None else rank.last_time
            if latest - alive > max(_FROZEN_AFTER_SECONDS, longest / 2):
                found.append(number)
    return tuple(found)


def _find_awaited_collective(
    last_collectives: dict[int, LastCollectives], silent_ranks: tuple[int, ...]
) -> tuple[CalledCollective | None, tuple[int, ...], tuple[int, ...]]:
    """(the collective in which ranks wait, the waiting ranks, the ranks that have not reached it)."""
    waits = {rank: one.pending for rank, one in last_collectives.items() if one.pending is not None}
    best = _awaited_by_queue_counts(last_collectives, silent_ranks)
    for group in {call.group for call in waits.values()} | _unevenly_called_groups(last_collectives):
        members = members_of(last_collectives, group)
        made = {rank: last_collectives[rank].collectives_called(group) for rank in members if rank in last_collectives}
        if not made:
            continue
        fewest, most = min(made.values()), max(made.values())
        absent = tuple(sorted(rank for rank in members if rank in silent_ranks))
        late = absent or (tuple(sorted(r for r in made if made[r] == fewest)) if fewest < most else ())
        index = fewest if late and not absent else most - 1
        waiting = tuple(sorted(rank for rank, count in made.items() if count > index and rank not in late))
        calls = [call for rank in waiting if (call := last_collectives[rank].nth_call(group, index)) is not None]
        calls += [
            call for rank in waiting if (call := last_collectives[rank].pending) is not None and call.group == group
        ]
        if calls and len(waiting) > len(best[1]):
            best = (calls[0], waiting, late)
    if best[0] is None and silent_ranks:
        inside = {
            rank: call
            for rank, one in last_collectives.items()
            if (call := collective_in_progress(one, last_collectives)) is not None
        }
        if inside:
            return inside[min(inside)], tuple(sorted(inside)), silent_ranks
    return best


def _awaited_by_queue_counts(
    last_collectives: dict[int, LastCollectives], silent_ranks: tuple[int, ...]
) -> tuple[CalledCollective | None, tuple[int, ...], tuple[int, ...]]:
    """The awaited collective by the process groups' own counters, for collectives not called from Python."""
    for group in sorted({group for one in last_collectives.values() for group in one.queued}):
        between_two = any(f"{group} between two" in one.counts for one in last_collectives.values())
        counted = {rank: one.queued[group] for rank, one in last_collectives.items() if group in one.queued}
        members = members_of(last_collectives, group)
        if between_two or len(counted) < 2 or not set(members) <= {*counted, *silent_ranks}:
            continue
        fewest, most = min(counted.values()), max(counted.values())
        if fewest == most:
            continue
        late = tuple(sorted(rank for rank, count in counted.items() if count == fewest))
        waiting = tuple(sorted(rank for rank in counted if rank not in late))
        first = last_collectives[waiting[0]]
        if first.pending is not None and first.pending.group == group:
            continue
        return infer_native_collective(first, last_collectives, group, fewest), waiting, late
    return None, (), ()


def _unevenly_called_groups(last_collectives: dict[int, LastCollectives]) -> set[str]:
    """Groups in which ranks made different numbers of calls, since on a GPU a call returns before it is completed."""
    made: dict[str, set[int]] = defaultdict(set)
    for one in last_collectives.values():
        for group in {call.group for call in one.collectives}:
            if all(call.operator not in POINT_TO_POINT_OPERATIONS for call in one.collectives if call.group == group):
                made[group].add(one.collectives_called(group))
    return {group for group, counts in made.items() if len(counts) > 1}
