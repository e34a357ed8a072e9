"""What a report says of failure logs, as its JSON has it: the files that were read, and the errors in them."""

from __future__ import annotations

import msgspec


class LogFile(msgspec.Struct, frozen=True):
    """A log that was read."""

    path: str
    lines: int
    bytes: int


class Event(msgspec.Struct, frozen=True):
    """An error in a log; ``role`` is its part in the failure."""

    role: str
    type: str
    text: str
    path: str
    line: int
    ranks: tuple[int, ...]
    count: int
    time: float | None


class ExcerptLine(msgspec.Struct, frozen=True):
    """A line of a log; ``decisive`` where a finding rests on it."""

    number: int
    rank: int | None
    text: str
    decisive: bool


class Excerpt(msgspec.Struct, frozen=True):
    """Lines of one log that stand together."""

    path: str
    lines: tuple[ExcerptLine, ...]


class RankEnd(msgspec.Struct, frozen=True):
    """When a rank failed (seconds since 1970), of what, and whether by itself or because of another."""

    rank: int
    time: float
    by_itself: bool
    what: str


class Logs(msgspec.Struct, frozen=True):
    """What the logs say; ``versions`` by package."""

    logs: tuple[LogFile, ...]
    events: tuple[Event, ...]
    versions: dict[str, str]
    excerpts: tuple[Excerpt, ...] = ()
    """For a page, as :attr:`ends`: the JSON is without."""
    ends: tuple[RankEnd, ...] = ()
