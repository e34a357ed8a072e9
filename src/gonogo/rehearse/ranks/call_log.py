"""A log of all collectives of the ranks that are rehearsed together, kept only on request."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import NamedTuple

from gonogo.virtual.protocol.messages import CallSite, Collective


class LoggedCall(NamedTuple):
    """A collective of one rank; ``number`` is its index within its group."""

    call: Collective
    number: int
    heard_ns: int


@dataclass
class CallLog:
    """The calls that the exchange has received."""

    groups: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Members of each process group, by its key."""
    alike: dict[str, int] = field(default_factory=dict)
    """The number of collectives in which all ranks of a group agreed."""
    calls: dict[int, list[LoggedCall]] = field(default_factory=dict)
    sites: dict[tuple[int, int], CallSite] = field(default_factory=dict)
    """Stacks, by rank and number of the call site."""

    def clear(self) -> None:
        """Discard everything, because the ranks are run again."""
        for table in (self.groups, self.alike, self.calls, self.sites):
            table.clear()

    def record_call(self, rank: int, call: Collective, members: tuple[int, ...], index: int) -> None:
        """Record a collective of a rank."""
        self.groups.setdefault(call.group, members)
        self.calls.setdefault(rank, []).append(LoggedCall(call, index, time.time_ns()))
