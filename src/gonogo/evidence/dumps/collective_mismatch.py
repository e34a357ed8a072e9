"""Find the first recorded collective that some ranks did not call, or called differently."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from gonogo.evidence.dumps.flight_recorder import FlightRecorderDump, RecordedCall

_VARIABLE_SIZE_OPERATIONS = frozenset(
    ("all_to_all", "all_to_all_single", "all_to_all_v_single", "all_gather", "gather", "scatter", "split")
)
"""Collectives whose sizes may differ between ranks."""


_RankCalls = tuple[FlightRecorderDump, dict[int, RecordedCall]]
"""A rank's dump, and its calls in one group by sequence number."""


class CollectiveMismatch(msgspec.Struct, frozen=True):
    """Ranks that wait in a collective, and ranks that did not reach it or called another one in its place."""

    kind: Literal["missing", "other-call", "other-size"]
    path: str
    """The path of a waiting rank's dump."""
    waiting: tuple[int, ...]
    call: RecordedCall
    others: tuple[int, ...]
    others_call: RecordedCall | None
    """The other ranks' call instead; if they did not reach it, their last call in the group, if known."""
    recorded: bool
    """False if there is no dump of the other ranks, so that their absence is inferred."""
    blocked_in: RecordedCall | None = None
    """The call in another group in which one of the other ranks waits."""
    dumped: bool = True
    """Whether there are dumps of the other ranks."""


def find_mismatch(dumps: tuple[FlightRecorderDump, ...]) -> CollectiveMismatch | None:
    """The first mismatch between the ranks of any group; None if all recorded calls agree."""
    found = list(_group_mismatches(dumps))
    # A differing call comes before a missing one, which follows from it; recorded facts before inferred ones.
    # If ranks wait for each other in two groups, the one in which all of them made calls is more informative.
    return min(
        found,
        key=lambda one: (not one.recorded, one.kind == "missing", one.others_call is None, one.call.sequence),
        default=None,
    )


def _group_mismatches(dumps: Sequence[FlightRecorderDump]) -> Iterator[CollectiveMismatch]:
    members: dict[tuple[str, tuple[int, ...]], dict[int, _RankCalls]] = defaultdict(dict)
    for dump in dumps:
        calls: dict[str, dict[int, RecordedCall]] = defaultdict(dict)
        for call in dump.calls:
            calls[call.group][call.sequence] = call
        for group, numbered in calls.items():
            ranks = dump.groups.get(group) or (next(iter(dump.groups.values())) if len(dump.groups) == 1 else ())
            members[group, ranks][dump.rank] = dump, numbered
    of_rank = {dump.rank: dump for dump in dumps}
    for (_, ranks), recorded in members.items():
        yield from _group_mismatch(ranks, recorded, of_rank)


def _group_mismatch(
    ranks: tuple[int, ...], recorded_calls: dict[int, _RankCalls], dumps: dict[int, FlightRecorderDump]
) -> Iterator[CollectiveMismatch]:
    begin = max(min(calls) for _, calls in recorded_calls.values())  # earlier calls are not in every ring buffer
    end = max(max(calls) for _, calls in recorded_calls.values())
    for number in range(begin, min(end, begin + 50_000) + 1):
        here = {rank: calls[number] for rank, (_, calls) in recorded_calls.items() if number in calls}
        late = tuple(sorted(rank for rank, (_, calls) in recorded_calls.items() if max(calls) < number))
        unlike = _mismatched_ranks(here)
        if unlike is not None:
            kind, first, other = unlike
            path = recorded_calls[first[0]][0].path
            yield CollectiveMismatch(kind, path, first, here[first[0]], other, here[other[0]], recorded=True)
            return
        waiting = tuple(sorted(rank for rank, call in here.items() if not call.done))
        if not waiting:
            continue
        call, path = here[waiting[0]], recorded_calls[waiting[0]][0].path
        if late:
            last = recorded_calls[late[0]][1]
            blocked_in = _first_unfinished(dumps[late[0]])
            yield CollectiveMismatch(
                "missing", path, waiting, call, late, last[max(last)], recorded=True, blocked_in=blocked_in
            )
            return
        absent = set(ranks) - set(recorded_calls)
        never = tuple(sorted(rank for rank in absent if rank in dumps))  # dumped, but no call in this group
        if never and len(waiting) == len(recorded_calls):
            whole = all(dumps[rank].whole for rank in never)
            blocked_in = _first_unfinished(dumps[never[0]])
            yield CollectiveMismatch("missing", path, waiting, call, never, None, recorded=whole, blocked_in=blocked_in)
            return
        if absent and len(waiting) == len(recorded_calls):
            yield CollectiveMismatch(
                "missing", path, waiting, call, tuple(sorted(absent)), None, recorded=False, dumped=False
            )
            return


def _first_unfinished(dump: FlightRecorderDump) -> RecordedCall | None:
    """The first call that a rank has not completed."""
    return next((call for call in dump.calls if not call.done), None)


def _mismatched_ranks(
    calls_by_rank: dict[int, RecordedCall],
) -> tuple[Literal["other-call", "other-size"], tuple[int, ...], tuple[int, ...]] | None:
    """Among calls with the same sequence number: the ranks with the most common one, and ranks with another."""
    alike: dict[object, list[int]] = defaultdict(list)
    for rank, call in sorted(calls_by_rank.items()):
        alike[_call_signature(call)].append(rank)
    if len(alike) < 2:
        return None
    first, other = sorted(alike.values(), key=lambda one: (-len(one), one))[:2]
    kind: Literal["other-call", "other-size"] = (
        "other-size" if calls_by_rank[first[0]].operation == calls_by_rank[other[0]].operation else "other-call"
    )
    return kind, tuple(first), tuple(other)


def _call_signature(call: RecordedCall) -> tuple[object, ...]:
    """What has to agree between ranks in one collective: its operator, sizes and types."""
    uneven = call.operation in _VARIABLE_SIZE_OPERATIONS or "barrier" in call.operation
    return call.operation, () if uneven else call.sizes, () if uneven else call.types
