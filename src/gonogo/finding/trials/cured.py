"""A cure in a report, as its JSON shows it: the patch, each step with its reason, and what else was tried."""

from __future__ import annotations

import msgspec

from gonogo.finding.text import Text


class TrialOutcome(msgspec.Struct, frozen=True):
    """The outcome of a trial. Sizes are bytes per rank (host: per node); None if the rehearsal didn't get so far."""

    verdict: str
    hazards: tuple[str, ...]
    """The hazards that prevented GO."""
    ranks: str
    """The rehearsed ranks, in the syntax of ``--ranks``."""
    peak_reserved_bytes: int | None = None
    capacity_bytes: int | None = None
    """What the caching allocator may reserve."""
    host_peak_bytes: int | None = None
    seconds_of_step: float | None = None
    """According to plan's roofline model: for comparison only."""
    allowance_bytes: int = 0
    """What the GPU has besides, for the CUDA context and libraries."""


class CureStep(msgspec.Struct, frozen=True):
    """One change that is part of the cure."""

    hazard: str
    """The hazard of the finding that it cures."""
    title: Text
    why: Text
    safe: bool
    files: tuple[str, ...]
    diff: str
    pins: tuple[str, ...] = ()


class RejectedChange(msgspec.Struct, frozen=True):
    """A change that was tried and rejected."""

    hazard: str
    title: Text
    outcome: Text


class Alternative(msgspec.Struct, frozen=True):
    """An alternative change of the same size that also makes the run GO."""

    instead_of: Text
    title: Text
    patch: str
    """The whole patch with this change."""
    seen: TrialOutcome


class Cure(msgspec.Struct, frozen=True):
    """A search for a cure. ``patch`` is empty if none was found, or if only pins are needed."""

    needed: bool
    """False if the run was GO without changes."""
    proven: bool
    """Whether the patched run was rehearsed with verdict GO."""
    before: TrialOutcome
    after: TrialOutcome | None
    patch: str
    patch_file: str | None
    """The file to which the patch was written."""
    folder: str
    """The folder in which to apply the patch."""
    pins: tuple[str, ...]
    variables: dict[str, str]
    command: tuple[str, ...] | None
    """The command to launch instead of the typed one; None if it stays the same."""
    steps: tuple[CureStep, ...]
    tried: tuple[RejectedChange, ...]
    alternatives: tuple[Alternative, ...]
    rehearsals: int
    seconds: float
    interrupted: bool = False
    applied: bool = False
