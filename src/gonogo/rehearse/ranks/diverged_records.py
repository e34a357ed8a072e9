"""The record of a rehearsal whose ranks diverged, put together from what the exchange saw and the ranks wrote."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from gonogo.evidence.rehearsal.conditions import guards_of
from gonogo.evidence.rehearsal.record import RankRecord
from gonogo.finding.divergence import CollectiveCall, Divergence, Side


def with_names(divergence: Divergence, records: Sequence[RankRecord]) -> Divergence:
    """The divergence with its parameters' names, and the conditions that its calls stand in."""
    names = {record.rank: record.parameter_names for record in records}

    def named(side: Side) -> Side:
        known = names.get(side.ranks[0], {})
        call = _named(side.call, known) if side.call is not None else None
        guards = tuple(guards_of(call.frames)) if call is not None else ()
        return replace(side, call=call, guards=guards, before=tuple(_named(one, known) for one in side.before))

    return replace(divergence, sides=tuple(map(named, divergence.sides)), earlier=tuple(map(named, divergence.earlier)))


def _named(call: CollectiveCall, names: dict[int, str]) -> CollectiveCall:
    return replace(call, parameters=tuple(names.get(int(number), f"#{number}") for number in call.parameters))


def settle(records: Sequence[RankRecord], divergence: Divergence) -> None:
    """Take back what ranks did after the call at which they diverged: the real run never comes to it."""
    for record in records:
        on_side = next((side for side in divergence.sides if record.rank in side.ranks), None)
        if on_side is not None and on_side.call is not None and record.outcome in ("completed", "raised"):
            record.outcome = "diverged"
            record.failure = None
