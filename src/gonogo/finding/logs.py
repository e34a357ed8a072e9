"""Failure logs in a report, as its JSON shows them: the files that were read, and the errors in them."""

from __future__ import annotations

import msgspec


class LogFile(msgspec.Struct, frozen=True):
    """A log that was read."""

    path: str
    lines: int
    bytes: int


class Event(msgspec.Struct, frozen=True):
    """An error in a log; ``role``: whether it is a cause, a consequence or harmless."""

    role: str
    type: str
    text: str
    path: str
    line: int
    ranks: tuple[int, ...]
    count: int
    time: float | None


class ExcerptLine(msgspec.Struct, frozen=True):
    """A line of a log; ``decisive`` if a finding is based on it."""

    number: int
    rank: int | None
    text: str
    decisive: bool


class Excerpt(msgspec.Struct, frozen=True):
    """Consecutive lines of one log."""

    path: str
    lines: tuple[ExcerptLine, ...]


class RankEnd(msgspec.Struct, frozen=True):
    """When a rank failed (seconds since 1970), with which error, and whether that was a cause or a consequence."""

    rank: int
    time: float
    by_itself: bool
    what: str


class Logs(msgspec.Struct, frozen=True):
    """What was read from the logs of a run; ``versions`` by package."""

    logs: tuple[LogFile, ...]
    events: tuple[Event, ...]
    versions: dict[str, str]
    excerpts: tuple[Excerpt, ...] = ()
    """For an HTML page, as is :attr:`ends`: the JSON doesn't contain them."""
    ends: tuple[RankEnd, ...] = ()
