"""A change that may cure a finding and has yet to be tried."""

from __future__ import annotations

import msgspec

from gonogo.finding import Applicability, Edit, Finding, Fix, Text


class Candidate(msgspec.Struct, frozen=True):
    """What to try: edits of the copy's files, releases to install in an overlay, or both."""

    finding: Finding
    title: Text
    edits: tuple[Edit, ...] = ()
    pins: tuple[str, ...] = ()
    safe: bool = False
    size: int = 0
    """How large the change is, relative to the other candidates of a finding; candidates may be equal in size."""
    kind: str = ""
    """What sort of change it is: a candidate of equal size and another kind is an alternative."""

    @property
    def key(self) -> tuple[object, ...]:
        """Identifies the change, so that none is tried twice."""
        return (self.edits, self.pins)


def candidate_from_fix(finding: Finding, fix: Fix) -> Candidate:
    """A candidate made from a finding's own fix."""
    return Candidate(finding, fix.title, fix.edits, safe=fix.applicability is Applicability.SAFE)
