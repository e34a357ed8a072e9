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


class Logs(msgspec.Struct, frozen=True):
    """What the logs say; ``versions`` by package."""

    logs: tuple[LogFile, ...]
    events: tuple[Event, ...]
    versions: dict[str, str]
