"""What a report says of a cure, as its JSON has it: the patch, each step with its reason, and what else was tried."""

from __future__ import annotations

import msgspec

from gonogo.finding.text import Text


class TrialOutcome(msgspec.Struct, frozen=True):
    """What a trial came to. Sizes are bytes of one rank (host: of one node); None where it was not rehearsed so far."""

    verdict: str
    hazards: tuple[str, ...]
    """What stood in the way."""
    ranks: str
    """Which ranks were rehearsed, as ``--ranks`` says it."""
    peak_reserved_bytes: int | None = None
    capacity_bytes: int | None = None
    host_peak_bytes: int | None = None
    seconds_of_step: float | None = None
    """By plan's roofline: it compares, and is no promise."""


class CureStep(msgspec.Struct, frozen=True):
    """One change that the cure is made of."""

    hazard: str
    """The finding that it cures."""
    title: Text
    why: Text
    safe: bool
    files: tuple[str, ...]
    diff: str
    pins: tuple[str, ...] = ()


class Tried(msgspec.Struct, frozen=True):
    """A change that was tried, and not taken."""

    hazard: str
    title: Text
    outcome: Text


class Alternative(msgspec.Struct, frozen=True):
    """Another change of the same size that makes the run GO as well."""

    instead_of: Text
    title: Text
    patch: str
    """The whole patch with it."""
    seen: TrialOutcome


class Cure(msgspec.Struct, frozen=True):
    """A search for a cure. ``patch`` is empty where none was found, or where nothing but pins is needed."""

    needed: bool
    """False where the run was GO as it is."""
    proven: bool
    """Whether the run with the patch was rehearsed GO."""
    before: TrialOutcome
    after: TrialOutcome | None
    patch: str
    patch_file: str | None
    """Where the patch was written."""
    folder: str
    """The folder that the patch applies in."""
    pins: tuple[str, ...]
    variables: dict[str, str]
    command: tuple[str, ...] | None
    """What to launch instead of a command that was typed; None where the command stays."""
    steps: tuple[CureStep, ...]
    tried: tuple[Tried, ...]
    alternatives: tuple[Alternative, ...]
    rehearsals: int
    seconds: float
    interrupted: bool = False
    applied: bool = False
