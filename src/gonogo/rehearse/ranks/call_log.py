"""All collectives of the ranks that are rehearsed together, in their order: kept only where they are asked for."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import NamedTuple

from gonogo.virtual.protocol.messages import Collective, Site


class LoggedCall(NamedTuple):
    """A collective of one rank; ``number`` counts within its group."""

    call: Collective
    number: int
    heard_ns: int


@dataclass
class CallLog:
    """What the exchange has heard."""

    groups: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Members of each process group, by its key."""
    alike: dict[str, int] = field(default_factory=dict)
    """How many collectives of the group all of its ranks have made alike."""
    calls: dict[int, list[LoggedCall]] = field(default_factory=dict)
    sites: dict[tuple[int, int], Site] = field(default_factory=dict)
    """Stacks, by rank and number."""

    def clear(self) -> None:
        """The ranks are run anew."""
        for table in (self.groups, self.alike, self.calls, self.sites):
            table.clear()

    def called(self, rank: int, call: Collective, members: tuple[int, ...], index: int) -> None:
        """A rank has made a collective."""
        self.groups.setdefault(call.group, members)
        self.calls.setdefault(rank, []).append(LoggedCall(call, index, time.time_ns()))
