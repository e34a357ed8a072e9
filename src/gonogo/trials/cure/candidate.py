"""A change that may cure a finding, before it is tried."""

from __future__ import annotations

import msgspec

from gonogo.finding import Applicability, Edit, Finding, Fix, Text


class Candidate(msgspec.Struct, frozen=True):
    """What to try: edits of the copy's files, releases to lay over, or both."""

    finding: Finding
    title: Text
    edits: tuple[Edit, ...] = ()
    pins: tuple[str, ...] = ()
    safe: bool = False
    size: int = 0
    """How large a change it is, among candidates of one finding; those of one size are equal."""
    kind: str = ""
    """What sort of change: one of equal size and another sort is an alternative."""

    @property
    def key(self) -> tuple[object, ...]:
        """What tells it from others: the same change isn't tried twice."""
        return (self.edits, self.pins)


def candidate_from_fix(finding: Finding, fix: Fix) -> Candidate:
    """A finding's own fix."""
    return Candidate(finding, fix.title, fix.edits, safe=fix.applicability is Applicability.SAFE)
