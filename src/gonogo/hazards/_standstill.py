"""Who waits for whom where a guarded run stands still: from each rank's last collectives and where its threads were.

The n-th call of a rank in a group is matched with the n-th of the others. A rank that has made fewer calls in a group
than the others is the one that they wait for; where it is by then tells why.
"""

from __future__ import annotations

from collections import defaultdict

import msgspec

from gonogo.evidence.divergence import Call, Divergence, Side
from gonogo.evidence.frame import Frame
from gonogo.evidence.guarded import Collective, GuardedRank, GuardedRun, Phase, Stalled
from gonogo.evidence.guards import guards_of
from gonogo.hazards._guarded import deaths, exception_of, once_a_run, stands

_BETWEEN_TWO = frozenset(
    {"send", "recv", "isend", "irecv", "batch_isend_irecv", "send_object_list", "recv_object_list"}
)
_UNEVEN = frozenset({"all_to_all", "all_to_all_single", "all_gather", "gather", "scatter"})
"""Their sizes may differ from rank to rank."""
_FROZEN_AFTER = 30.0
"""Seconds without a sign of life after which a rank's Python is taken not to answer."""


class Seen(msgspec.Struct, frozen=True):
    """What a rank's last record tells of its collectives."""

    rank: int
    collectives: tuple[Collective, ...]
    counts: dict[str, int]
    frames: tuple[Frame, ...]
    """Where its main thread was."""
    module: str | None
    phase: Phase
    step: int
    ended: bool
    """Whether it has ended well, and so never comes to anything again."""

    @property
    def pending(self) -> Collective | None:
        """The collective in which it waits, or None."""
        last = self.collectives[-1] if self.collectives else None
        return last if last is not None and not last.returned else None

    def made(self, group: str) -> int:
        """How many collectives it has called in a group."""
        called = [one.index + 1 for one in self.collectives if one.group == group]
        return max([self.counts.get(group, 0), *called])

    def call(self, group: str, index: int) -> Collective | None:
        """Its n-th collective in a group, where that is among the last."""
        return next((one for one in self.collectives if one.group == group and one.index == index), None)


class Standstill(msgspec.Struct, frozen=True):
    """A run that stands still. ``late`` are the ranks that have not come to the collective that the others wait in."""

    stalls: dict[int, Stalled]
    """The last record of each rank that noticed."""
    seen: dict[int, Seen]
    call: Collective | None
    """The collective that is waited in; None where no rank waits in one."""
    waiting: tuple[int, ...] = ()
    late: tuple[int, ...] = ()
    silent: tuple[int, ...] = ()
    """Ranks of the world that do not answer: their Python does not run, or they never started."""

    @property
    def seconds(self) -> float:
        """How long it had lasted when last seen."""
        return max((stall.seconds for stall in self.stalls.values()), default=0.0)

    @property
    def median(self) -> float:
        """The length of a step before; 0 where there was none."""
        return max((stall.median for stall in self.stalls.values()), default=0.0)


@once_a_run
def standstill(run: GuardedRun) -> Standstill | None:
    """The standstill that a run ended in, or is in; None where it never stood, went on, or a rank had failed before."""
    stalls = {rank.rank: rank.stalls[-1] for rank in run.ranks if stands(rank)}
    if not stalls:
        return None
    begun = min(stall.time - stall.seconds for stall in stalls.values())
    if any(not death.consequence and death.time < begun + 1.0 for death in deaths(run) if death.rank not in stalls):
        return None
    seen = {rank.rank: one for rank in run.ranks if (one := _seen(rank)) is not None}
    silent = _silent(run, stalls)
    call, waiting, late = _waited_for(seen, silent)
    return Standstill(stalls, seen, call, waiting, late, silent)


@once_a_run
def divergence(run: GuardedRun) -> Divergence | None:
    """Where the ranks' calls part: the first that are not alike, or each waits in another; None where none is seen."""
    seen = {rank.rank: one for rank in run.ranks if (one := _seen(rank)) is not None}
    still = standstill(run)
    failed = [rank for rank in run.ranks if exception_of(rank) is not None]
    if still is None and not failed:
        return None
    unlike = _first_unlike(seen)
    if unlike is not None:
        return unlike
    if still is None or still.call is None or still.silent:
        return None
    late = [seen[rank] for rank in still.late if rank in seen]
    if late and all(one.pending is not None for one in late):
        heads = {rank: seen[rank].pending for rank in (*still.waiting, *still.late) if rank in seen}
        return Divergence("deadlock", _sides(seen, heads))
    if late and all(one.ended for one in late):
        heads = {rank: seen[rank].pending for rank in still.waiting}
        return Divergence("ended", _sides(seen, {**heads, **dict.fromkeys(still.late)}))
    return None


def _seen(rank: GuardedRank) -> Seen | None:
    raised = exception_of(rank)
    stall = rank.stalls[-1] if rank.stalls and stands(rank) else None
    end = rank.end
    step = rank.last_step
    if raised is not None and (stall is None or raised.time > stall.time):
        if not raised.counts and not raised.collectives and stall is not None:
            raised = None
        else:
            calls = raised.collectives
            return Seen(rank.rank, calls, raised.counts, raised.frames, raised.module, raised.phase, step, False)
    if stall is not None:
        main = stall.threads[0].frames if stall.threads else ()
        return Seen(rank.rank, stall.collectives, stall.counts, main, stall.module, stall.phase, stall.step, False)
    if end is not None:
        well = end.reason == "exit" and not end.status
        return Seen(rank.rank, end.collectives, end.counts, end.frames, None, "exit", end.step, well)
    return None


def _silent(run: GuardedRun, stalls: dict[int, Stalled]) -> tuple[int, ...]:
    """Ranks that have written nothing of the stall, though they are in the world and have not ended."""
    latest = max(stall.time for stall in stalls.values())
    found = []
    for number in range(run.world_size):
        rank = run.rank(number)
        if rank is None:
            found.append(number)
        elif number not in stalls and rank.end is None and exception_of(rank) is None:
            alive = rank.beat.time if rank.beat is not None else rank.last_time
            if latest - alive > _FROZEN_AFTER:
                found.append(number)
    return tuple(found)


def _waited_for(
    seen: dict[int, Seen], silent: tuple[int, ...]
) -> tuple[Collective | None, tuple[int, ...], tuple[int, ...]]:
    """(the collective that is waited in, the ranks that wait, the ranks that have not come to it)."""
    waits = {rank: one.pending for rank, one in seen.items() if one.pending is not None}
    best: tuple[Collective | None, tuple[int, ...], tuple[int, ...]] = (None, (), ())
    for group in {call.group for call in waits.values()} | _ahead(seen):
        members = _members(seen, group)
        made = {rank: seen[rank].made(group) for rank in members if rank in seen}
        if not made:
            continue
        fewest, most = min(made.values()), max(made.values())
        absent = tuple(sorted(rank for rank in members if rank in silent))
        late = absent or (tuple(sorted(r for r in made if made[r] == fewest)) if fewest < most else ())
        index = fewest if late and not absent else most - 1
        waiting = tuple(sorted(rank for rank, count in made.items() if count > index and rank not in late))
        calls = [call for rank in waiting if (call := seen[rank].call(group, index)) is not None]
        calls += [call for rank in waiting if (call := seen[rank].pending) is not None and call.group == group]
        if calls and len(waiting) > len(best[1]):
            best = (calls[0], waiting, late)
    return best


def _ahead(seen: dict[int, Seen]) -> set[str]:
    """Groups in which some ranks have made more calls than others: on a GPU a call returns before it is done."""
    made: dict[str, set[int]] = defaultdict(set)
    for one in seen.values():
        for group in {call.group for call in one.collectives}:
            if all(call.operator not in _BETWEEN_TWO for call in one.collectives if call.group == group):
                made[group].add(one.made(group))
    return {group for group, counts in made.items() if len(counts) > 1}


def _members(seen: dict[int, Seen], group: str) -> tuple[int, ...]:
    for one in seen.values():
        for call in one.collectives:
            if call.group == group and call.ranks:
                return call.ranks
    return tuple(seen)


def _first_unlike(seen: dict[int, Seen]) -> Divergence | None:
    """The first calls of one group and number that are not alike."""
    calls: dict[tuple[str, int], dict[int, Collective]] = defaultdict(dict)
    between = {
        call.group for one in seen.values() for call in one.collectives if call.operator in _BETWEEN_TWO
    }  # their numbers need not agree
    for rank, one in seen.items():
        for call in one.collectives:
            if call.group not in between:
                calls[call.group, call.index][rank] = call
    for (_, index), heads in sorted(calls.items(), key=lambda item: item[0][1]):
        if len({_signature(call) for call in heads.values()}) < 2:
            continue
        others = len({(call.operator, call.peer) for call in heads.values()}) > 1
        group = next(iter(heads.values())).group
        before = next(
            (one.call(group, index - 1) for one in seen.values() if one.call(group, index - 1) is not None), None
        )
        return Divergence(
            "other-call" if others else "other-size",
            _sides(seen, dict(heads)),
            _call(before, None) if before is not None else None,
        )
    return None


def _signature(call: Collective) -> tuple[object, ...]:
    sizes = () if call.operator in _UNEVEN or "object" in call.operator else _elements(call)
    return call.operator, call.peer, sizes, call.dtype if sizes else ""


def _elements(call: Collective) -> tuple[int, ...]:
    found = []
    for shape in call.shapes:
        count = 1
        for length in shape:
            count *= length
        found.append(count)
    return tuple(found)


def _sides(seen: dict[int, Seen], heads: dict[int, Collective | None]) -> tuple[Side, ...]:
    alike: dict[object, list[int]] = defaultdict(list)
    for rank, call in heads.items():
        alike[(call.group, call.index, _signature(call)) if call is not None else "ended"].append(rank)
    made = [_side(seen, ranks, heads[ranks[0]]) for ranks in alike.values()]
    return tuple(sorted(made, key=lambda side: (-len(side.ranks), side.ranks)))


def _side(seen: dict[int, Seen], ranks: list[int], head: Collective | None) -> Side:
    first = seen[min(ranks)]
    call = _call(head, first.module if head is not None and not head.returned else None) if head is not None else None
    frames = call.frames if call is not None else ()
    return Side(
        ranks=tuple(sorted(ranks)),
        call=call,
        guards=tuple(guards_of(frames)),
        steps=first.step,
        functions=tuple(frame.function for frame in frames),
    )


def _call(call: Collective, module: str | None) -> Call:
    return Call(
        operator=call.operator,
        group=call.ranks,
        index=call.index,
        sizes=_elements(call),
        dtype=call.dtype or None,
        root=call.peer,
        module=module,
        phase=call.phase if call.phase != "between" else "load",
        step=call.step,
        frames=call.frames,
    )
