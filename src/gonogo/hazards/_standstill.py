"""Who waits for whom where a guarded run stands still: from each rank's last collectives and where its threads were.

The n-th call of a rank in a group is matched with the n-th of the others. A rank that has made fewer calls in a group
than the others is the one that they wait for; where it is by then tells why.
"""

from __future__ import annotations

import signal
from collections import defaultdict

import msgspec
from msgspec.structs import replace

from gonogo.evidence.divergence import Call, Divergence, Side
from gonogo.evidence.frame import Frame
from gonogo.evidence.guarded import Collective, GuardedRank, GuardedRun, Phase, Stalled
from gonogo.evidence.guards import guards_of
from gonogo.evidence.patterns import Pattern
from gonogo.hazards._guarded import all_joined, deaths, exception_of, is_consequence, once_a_run, stands

_BETWEEN_TWO = frozenset(
    {"send", "recv", "isend", "irecv", "batch_isend_irecv", "send_object_list", "recv_object_list"}
)
_UNEVEN = frozenset({"all_to_all", "all_to_all_single", "all_gather", "gather", "scatter"})
"""Their sizes may differ from rank to rank."""
_TIME_OUT = Pattern(r"(?i)timed out|time-?out")
_FROZEN_AFTER = 5.0
"""Seconds without a sign of life after which a rank's Python is taken not to answer; it gives one each second."""


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
    queued: dict[str, int] = {}
    """How many collectives each process group has counted, those among them that C++ makes: DDP's of gradients."""

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
        waited = self.call.ago if self.call is not None else 0.0
        return max((stall.seconds for stall in self.stalls.values()), default=waited)

    @property
    def median(self) -> float:
        """The length of a step before; 0 where there was none."""
        return max((stall.median for stall in self.stalls.values()), default=0.0)


@once_a_run
def standstill(run: GuardedRun) -> Standstill | None:
    """The standstill that a run ended in, or is in; None where it never stood, went on, or a rank had failed before."""
    stalls = {rank.rank: rank.stalls[-1] for rank in run.ranks if stands(rank)}
    if not stalls:
        return _timed_out(run)
    begun = min(stall.time - stall.seconds for stall in stalls.values())
    if any(not death.consequence and death.time < begun + 1.0 for death in deaths(run) if death.rank not in stalls):
        return None
    seen = {rank.rank: one for rank in run.ranks if (one := _seen(rank)) is not None}
    silent = _silent(run, stalls)
    call, waiting, late = _waited_for(seen, silent)
    return Standstill(stalls, seen, call, waiting, late, silent)


def _timed_out(run: GuardedRun) -> Standstill | None:
    """Ranks whose time for a collective was over before they were taken to stall, and those that had not come to it.

    Where these were is what Python's fault handler left as the launcher ended them.
    """
    over = [rank for rank in run.ranks if (raised := exception_of(rank)) and _TIME_OUT.search(raised.message)]
    left = [rank for rank in run.ranks if exception_of(rank) is None and rank.dump is not None]
    if not over or len(over) + len(left) < len(run.ranks) or any(not death.consequence for death in deaths(run)):
        return None
    seen = {rank.rank: one for rank in run.ranks if (one := _seen(rank)) is not None}
    first = seen[over[0].rank]
    if any(_called_by(seen[rank.rank], seen) is not None for rank in left):
        return None
    call = first.pending or _unnamed(first, seen)
    waiting, late = (tuple(sorted(rank.rank for rank in some)) for some in (over, left))
    return Standstill({}, seen, call, waiting, late) if late else None


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
    if still is None:
        return _left_alone(failed, seen) or _aborted_inside(run, seen)
    if still.call is None or still.silent:
        return None
    late = [seen[rank] for rank in still.late if rank in seen]
    if late and all(one.pending is not None for one in late):
        heads = {rank: seen[rank].pending for rank in (*still.waiting, *still.late) if rank in seen}
        return Divergence("deadlock", _sides(seen, heads))
    if late and all(one.ended for one in late):
        heads = {rank: seen[rank].pending for rank in still.waiting}
        return Divergence("ended", _sides(seen, {**heads, **dict.fromkeys(still.late)}))
    return None


def _left_alone(failed: list[GuardedRank], seen: dict[int, Seen]) -> Divergence | None:
    """Ranks whose exceptions only say that another is gone, where the other had come to its end well."""
    ended = [rank for rank, one in seen.items() if one.ended]
    lost = [rank.rank for rank in failed if (raised := exception_of(rank)) is not None and is_consequence(raised)]
    if not ended or not lost or len(lost) < len(failed):
        return None
    heads: dict[int, Collective | None] = {rank: seen[rank].pending or _unnamed(seen[rank], seen) for rank in lost}
    return Divergence("ended", _sides(seen, {**heads, **dict.fromkeys(ended)}))


def _aborted_inside(run: GuardedRun, seen: dict[int, Seen]) -> Divergence | None:
    """A rank that native code aborted in a collective, while the others stood in other ones: gloo does so."""
    aborted = [death for death in deaths(run) if death.signal == signal.SIGABRT and death.rank in seen]
    lost = [death.rank for death in deaths(run) if death.raised is not None and death.consequence]
    heads = {rank: _called_by(seen[rank], seen) for rank in (*(death.rank for death in aborted), *lost) if rank in seen}
    calls = [call for call in heads.values() if call is not None]
    places = {(frame.path, frame.line) for call in calls for frame in call.frames[-1:]}
    if not aborted or len(calls) < len(heads) or len(places) < 2:
        return None
    return Divergence("other-call", _sides(seen, {rank: call for rank, call in heads.items() if call is not None}))


def _called_by(one: Seen, seen: dict[int, Seen]) -> Collective | None:
    """The collective in which a stack stands, or None."""
    if one.pending is not None:
        return one.pending
    inside = next((f for f in reversed(one.frames) if f.path.endswith("torch/distributed/distributed_c10d.py")), None)
    found = _unnamed(one, seen)
    outside = tuple(frame for frame in one.frames if frame.owner != "torch")
    if inside is not None:
        return replace(found, operator=inside.function, frames=outside)
    return replace(found, frames=outside) if found.operator == "all_reduce" else None


def _unnamed(one: Seen, seen: dict[int, Seen], group: str = "", index: int = 0) -> Collective:
    """A collective that C++ makes, such as DDP's of gradients: known by where the rank stands alone."""
    in_backward = any(frame.function == "_engine_run_backward" for frame in one.frames)
    return Collective(
        "all_reduce" if in_backward else "a collective of torch's own",
        group,
        _members(seen, group) if group else tuple(sorted(seen)),
        index,
        frames=one.frames,
        phase="backward" if in_backward else one.phase,
        step=one.step,
    )


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
        queued = {queue.group: queue.enqueued for queue in stall.queues}
        return Seen(
            rank.rank, stall.collectives, stall.counts, main, stall.module, stall.phase, stall.step, False, queued
        )
    if rank.dump is not None and (end is None or end.reason == "signal"):
        main = rank.dump.threads[0].frames if rank.dump.threads else ()
        return Seen(rank.rank, (), {}, main, None, "between", step, False)
    if end is not None:
        well = end.reason == "exit" and not end.status
        return Seen(rank.rank, end.collectives, end.counts, end.frames, None, "exit", end.step, well)
    return None


def _silent(run: GuardedRun, stalls: dict[int, Stalled]) -> tuple[int, ...]:
    """Ranks that have written nothing of the stall, though they are in the world and have not ended."""
    latest = max(stall.time for stall in stalls.values())
    longest = max(stall.seconds for stall in stalls.values())
    found = []
    for number in range(run.world_size):
        rank = run.rank(number)
        if rank is None:
            if not all_joined(run):
                found.append(number)
        elif number not in stalls and rank.end is None and exception_of(rank) is None:
            alive = rank.beat.time if rank.beat is not None else rank.last_time
            if latest - alive > max(_FROZEN_AFTER, longest / 2):
                found.append(number)
    return tuple(found)


def _waited_for(
    seen: dict[int, Seen], silent: tuple[int, ...]
) -> tuple[Collective | None, tuple[int, ...], tuple[int, ...]]:
    """(the collective that is waited in, the ranks that wait, the ranks that have not come to it)."""
    waits = {rank: one.pending for rank, one in seen.items() if one.pending is not None}
    best = _behind_in_a_queue(seen, silent)
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


def _behind_in_a_queue(
    seen: dict[int, Seen], silent: tuple[int, ...]
) -> tuple[Collective | None, tuple[int, ...], tuple[int, ...]]:
    """The same by what the process groups have counted, for collectives that no Python function was called for."""
    for group in sorted({group for one in seen.values() for group in one.queued}):
        between_two = any(f"{group} between two" in one.counts for one in seen.values())
        counted = {rank: one.queued[group] for rank, one in seen.items() if group in one.queued}
        members = _members(seen, group)
        if between_two or len(counted) < 2 or not set(members) <= {*counted, *silent}:
            continue
        fewest, most = min(counted.values()), max(counted.values())
        if fewest == most:
            continue
        late = tuple(sorted(rank for rank, count in counted.items() if count == fewest))
        waiting = tuple(sorted(rank for rank in counted if rank not in late))
        first = seen[waiting[0]]
        if first.pending is not None and first.pending.group == group:
            continue
        return _unnamed(first, seen, group, fewest), waiting, late
    return None, (), ()


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


def _place(call: Collective) -> tuple[str, int] | None:
    """Where it was called, which tells apart what has no number."""
    return (call.frames[-1].path, call.frames[-1].line) if call.frames and not call.group else None


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
        alike[(call.group, call.index, _signature(call), _place(call)) if call is not None else "ended"].append(rank)
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
        phase=call.phase,
        step=call.step,
        frames=call.frames,
    )
