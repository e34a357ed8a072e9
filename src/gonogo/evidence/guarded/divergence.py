"""Find the first collective that not all ranks of a guarded run call alike."""

from __future__ import annotations

import signal
from collections import defaultdict

from gonogo.evidence.guarded.ends import cached_per_run, fatal_exception, is_consequence, rank_deaths
from gonogo.evidence.guarded.guarded_run import GuardedRank, GuardedRun
from gonogo.evidence.guarded.last_seen import (
    POINT_TO_POINT_OPERATIONS,
    LastCollectives,
    collective_in_progress,
    infer_native_collective,
    last_collectives_by_rank,
)
from gonogo.evidence.guarded.records import CalledCollective
from gonogo.evidence.guarded.standstill import find_hang
from gonogo.evidence.rehearsal.conditions import conditions_around_stack
from gonogo.finding.divergence import CollectiveCall, Divergence, Side

_UNEVEN_COLLECTIVES = frozenset({"all_to_all", "all_to_all_single", "all_gather", "gather", "scatter"})
"""Collectives whose sizes may differ between ranks."""


@cached_per_run
def find_divergence(run: GuardedRun) -> Divergence | None:
    """The first mismatched calls, or calls in which ranks wait for each other; None if no divergence is found."""
    seen = last_collectives_by_rank(run)
    still = find_hang(run)
    failed = [rank for rank in run.ranks if fatal_exception(rank) is not None]
    if still is None and not failed:
        return None
    unlike = _first_mismatched_calls(seen)
    if unlike is not None:
        return unlike
    if still is None:
        return _waiting_for_finished_rank(failed, seen) or _aborted_in_collective(run, seen)
    if still.call is None or still.silent:
        return None
    late = [seen[rank] for rank in still.late if rank in seen]
    if late and all(one.pending is not None for one in late):
        heads = {rank: seen[rank].pending for rank in (*still.waiting, *still.late) if rank in seen}
        return Divergence("deadlock", _divergence_sides(seen, heads))
    if late and all(one.ended for one in late):
        heads = {rank: seen[rank].pending for rank in still.waiting}
        return Divergence("ended", _divergence_sides(seen, {**heads, **dict.fromkeys(still.late)}))
    return None


def _waiting_for_finished_rank(
    failed_ranks: list[GuardedRank], last_collectives: dict[int, LastCollectives]
) -> Divergence | None:
    """Ranks that only lost the connection to another rank, which had finished normally."""
    ended = [rank for rank, one in last_collectives.items() if one.ended]
    lost = [
        rank.rank for rank in failed_ranks if (raised := fatal_exception(rank)) is not None and is_consequence(raised)
    ]
    if not ended or not lost or len(lost) < len(failed_ranks):
        return None
    heads: dict[int, CalledCollective | None] = {
        rank: last_collectives[rank].pending or infer_native_collective(last_collectives[rank], last_collectives)
        for rank in lost
    }
    return Divergence("ended", _divergence_sides(last_collectives, {**heads, **dict.fromkeys(ended)}))


def _aborted_in_collective(run: GuardedRun, last_collectives: dict[int, LastCollectives]) -> Divergence | None:
    """A rank that native code aborted in a collective while others were in different ones, as gloo does."""
    aborted = [death for death in rank_deaths(run) if death.signal == signal.SIGABRT and death.rank in last_collectives]
    lost = [death.rank for death in rank_deaths(run) if death.raised is not None and death.consequence]
    heads = {
        rank: collective_in_progress(last_collectives[rank], last_collectives)
        for rank in (*(death.rank for death in aborted), *lost)
        if rank in last_collectives
    }
    calls = [call for call in heads.values() if call is not None]
    places = {(frame.path, frame.line) for call in calls for frame in call.frames[-1:]}
    if not aborted or len(calls) < len(heads) or len(places) < 2:
        return None
    return Divergence(
        "other-call",
        _divergence_sides(last_collectives, {rank: call for rank, call in heads.items() if call is not None}),
    )


def _first_mismatched_calls(last_collectives: dict[int, LastCollectives]) -> Divergence | None:
    """The first calls with the same group and sequence number that differ."""
    calls: dict[tuple[str, int], dict[int, CalledCollective]] = defaultdict(dict)
    between = {
        call.group
        for one in last_collectives.values()
        for call in one.collectives
        if call.operator in POINT_TO_POINT_OPERATIONS
    }  # their sequence numbers don't correspond
    for rank, one in last_collectives.items():
        for call in one.collectives:
            if call.group not in between:
                calls[call.group, call.index][rank] = call
    for (_, index), heads in sorted(calls.items(), key=lambda item: item[0][1]):
        if len({_call_signature(call) for call in heads.values()}) < 2:
            continue
        others = len({(call.operator, call.peer) for call in heads.values()}) > 1
        group = next(iter(heads.values())).group
        before = next(
            (
                one.nth_call(group, index - 1)
                for one in last_collectives.values()
                if one.nth_call(group, index - 1) is not None
            ),
            None,
        )
        return Divergence(
            "other-call" if others else "other-size",
            _divergence_sides(last_collectives, dict(heads)),
            _to_collective_call(before, None) if before is not None else None,
        )
    return None


def _call_signature(call: CalledCollective) -> tuple[object, ...]:
    """What has to be the same on all ranks: operator, group, sizes."""
    sizes = () if call.operator in _UNEVEN_COLLECTIVES or "object" in call.operator else _element_counts(call)
    return call.operator, call.peer, sizes, call.dtype if sizes else ""


def _call_site(call: CalledCollective) -> tuple[str, int] | None:
    """The file and line of a call without a sequence number, to distinguish it from others."""
    return (call.frames[-1].path, call.frames[-1].line) if call.frames and not call.group else None


def _element_counts(call: CalledCollective) -> tuple[int, ...]:
    found = []
    for shape in call.shapes:
        count = 1
        for length in shape:
            count *= length
        found.append(count)
    return tuple(found)


def _divergence_sides(
    last_collectives: dict[int, LastCollectives], pending_calls: dict[int, CalledCollective | None]
) -> tuple[Side, ...]:
    alike: dict[object, list[int]] = defaultdict(list)
    for rank, call in pending_calls.items():
        alike[
            (call.group, call.index, _call_signature(call), _call_site(call)) if call is not None else "ended"
        ].append(rank)
    made = [_divergence_side(last_collectives, ranks, pending_calls[ranks[0]]) for ranks in alike.values()]
    return tuple(sorted(made, key=lambda side: (-len(side.ranks), side.ranks)))


def _divergence_side(
    last_collectives: dict[int, LastCollectives], ranks: list[int], pending_call: CalledCollective | None
) -> Side:
    first = last_collectives[min(ranks)]
    call = (
        _to_collective_call(
            pending_call, first.module if pending_call is not None and not pending_call.returned else None
        )
        if pending_call is not None
        else None
    )
    frames = call.frames if call is not None else ()
    return Side(
        ranks=tuple(sorted(ranks)),
        call=call,
        guards=tuple(conditions_around_stack(frames)),
        steps=first.step,
        functions=tuple(frame.function for frame in frames),
    )


def _to_collective_call(call: CalledCollective, module: str | None) -> CollectiveCall:
    return CollectiveCall(
        operator=call.operator,
        group=call.ranks,
        index=call.index,
        sizes=_element_counts(call),
        dtype=call.dtype or None,
        root=call.peer,
        module=module,
        phase=call.phase,
        step=call.step,
        frames=call.frames,
    )
