"""A value with its place and status: known, absent, or not determined by the files."""

from __future__ import annotations

from enum import Enum
from typing import Any

import msgspec

from gonogo.evidence.source_file import Place
from gonogo.finding import Span, Text


class Status(str, Enum):
    """``resolved``: the value is known; ``absent``: it is not set; ``unknown``: the files don't determine it."""

    RESOLVED = "resolved"
    ABSENT = "absent"
    UNKNOWN = "unknown"


_TRUE = frozenset({"true", "yes", "on", "1", "t", "y"})
_FALSE = frozenset({"false", "no", "off", "0", "f", "n"})


class Field(msgspec.Struct, frozen=True):
    """A setting's value, or why it is unknown; ``reason`` may also say how a value was resolved."""

    value: Any = None
    status: Status = Status.RESOLVED
    place: Place | None = None
    reason: Text | None = None

    @classmethod
    def of(cls, value: Any, place: Place | None = None, reason: Text | None = None) -> Field:
        """A known value."""
        return cls(value, Status.RESOLVED, place, reason)

    @classmethod
    def missing(cls) -> Field:
        """A value that is not set."""
        return _ABSENT_FIELD

    @classmethod
    def not_known(cls, place: Place | None = None, reason: Text | None = None) -> Field:
        """A value that may be set but can't be determined."""
        return cls(None, Status.UNKNOWN, place, reason)

    @property
    def known(self) -> bool:
        """Whether the value is set and known."""
        return self.status is Status.RESOLVED

    @property
    def absent(self) -> bool:
        """Whether the value is certainly not set."""
        return self.status is Status.ABSENT

    @property
    def unknown(self) -> bool:
        """Whether the value can't be determined."""
        return self.status is Status.UNKNOWN

    def get(self, default: Any = None) -> Any:
        """The value if it is known, otherwise ``default``."""
        return self.value if self.known else default

    @property
    def truth(self) -> bool | None:
        """The value as a boolean, however it is written (``"True"``, ``1``, ``on``); None if it is not one."""
        if not self.known:
            return None
        if isinstance(self.value, bool):
            return self.value
        word = str(self.value).strip().lower()
        return True if word in _TRUE else False if word in _FALSE else None

    @property
    def number(self) -> int | float | None:
        """The value as a number, also if it is written as a string (``"1e-5"``); None if it is not one."""
        if not self.known or isinstance(self.value, bool):
            return None
        if isinstance(self.value, (int, float)):
            return self.value
        try:
            text = str(self.value).strip()
            return int(text) if text.lstrip("+-").isdecimal() else float(text)
        except ValueError:
            return None

    @property
    def string(self) -> str | None:
        """The value if it is a string, otherwise None."""
        return self.value if self.known and isinstance(self.value, str) else None

    def span(self, label: Text | None = None) -> Span | None:
        """Its place as a span for reports; None if unknown."""
        return self.place.span(label) if self.place is not None else None


_ABSENT_FIELD = Field(None, Status.ABSENT)


def whole_number(field: Field | None) -> int | None:
    """A known number as an integer; None if it is not a number (``2-4``), a fraction, or too large."""
    number = field.number if field is not None else None
    if number is None or not -1e18 < number < 1e18 or number != int(number):
        return None
    return int(number)
