"""A bisection in a report, as its JSON shows it: each release that was tried, and the one found."""

from __future__ import annotations

import msgspec


class TriedRelease(msgspec.Struct, frozen=True):
    """A release that was tried; ``judged`` is ``good``, ``bad`` or ``skipped``."""

    version: str
    verdict: str | None
    judged: str
    hazards: tuple[str, ...]
    seconds: float | None


class Bisection(msgspec.Struct, frozen=True):
    """A bisection between two releases; ``version`` is the first bad one, if known."""

    package: str
    good: str
    bad: str
    change: str | None
    """The effect of the release: ``breaks`` or ``mends``."""
    version: str | None
    nearest_good: str | None
    nearest_bad: str | None
    undecided: tuple[str, ...]
    interrupted: bool
    tried: tuple[TriedRelease, ...]
