"""What a rank saw of a run's life: which state it saved, and what of it the resumed program holds when it trains on.

State is known by what was copied where, from the program's own tensors through its files into the tensors of the second
life: no name of a framework, and no name in a file, decides.
"""

from __future__ import annotations

from typing import Literal

import msgspec

StateKind = Literal["parameter", "buffer", "optimizer", "average"]
LifePart = Literal["", "first", "second", "convert", "merge", "serve"]
"""Empty: a rehearsal of one life, of which nothing of this is recorded. What comes after both goes by its stage."""
RESULT_STAGES: tuple[LifePart, ...] = ("convert", "merge", "serve")
"""Stages in which another program reads what the first life saved."""


class StateOrigin(msgspec.Struct, frozen=True):
    """Where the contents of a tensor come from: a state of the first life, by a file."""

    kind: str
    """A :data:`StateKind`; ``base``: a file that the first life did not write; ``rank``: another rank sent it."""
    slot: str = ""
    name: str = ""
    """Of ``rank``: its number."""
    file: str = ""
    key: str = ""
    """Its name in the file, where it has one."""
    share: float = 1.0
    """The share of the tensor that comes from there."""
    part: str = ""
    """The place in the whole of what the rank had that wrote it; empty where it had all."""


class HeldState(msgspec.Struct, frozen=True):
    """A parameter, a buffer, or a tensor of an optimizer's state, as a rank holds it."""

    kind: StateKind
    name: str
    """The parameter's name; of an optimizer that holds others (a flat partition), its place in the optimizer."""
    shape: tuple[int, ...]
    dtype: str
    slot: str = ""
    """Of an optimizer: ``exp_avg``, ``momentum_buffer``; ``weights``: what it steps, if that is no parameter."""
    trained: bool = True
    drawn: bool = False
    """Whether no file gave its first values: they were drawn, or set, by the program."""
    origins: tuple[StateOrigin, ...] = ()
    part: str = ""
    """The place in the whole of what this rank has; empty where it has all."""

    @property
    def identity(self) -> tuple[str, str, str]:
        """What it is called in both lives."""
        return self.kind, self.slot, self.name


class SavedTensor(msgspec.Struct, frozen=True):
    """A tensor in a file, and the states whose contents it has."""

    file: str
    key: str
    shape: tuple[int, ...]
    dtype: str
    holds: tuple[tuple[str, str, str], ...]
    """(kind, slot, name) of each."""


class StateCounter(msgspec.Struct, frozen=True):
    """A number that a run counts on: an optimizer's steps, a scheduler's position, the updates of an average."""

    kind: Literal["optimizer", "scheduler", "average"]
    name: str
    value: float | None
    """None where it can't be known."""


class StateMoment(msgspec.Struct, frozen=True):
    """All state of a rank at one moment."""

    step: int
    """Optimizer steps that this life had made."""
    held: tuple[HeldState, ...]
    counters: tuple[StateCounter, ...] = ()
    trains_on: bool = True
    """Whether training went on from here; else the program ended without another step."""


class FileEvent(msgspec.Struct, frozen=True):
    """A file that was opened to write, or something that was renamed."""

    at: float
    """Seconds since 1970."""
    path: str
    renamed_from: str = ""


class RankLife(msgspec.Struct):
    """What a rank saw of one life."""

    part: LifePart
    saved: list[SavedTensor] = []
    files: list[str] = []
    """Files that it wrote, or read, with state in them."""
    written: list[str] = []
    """Every file that it opened to write, from its first step on."""
    file_events: list[FileEvent] = []
    """The same in order, with what was renamed."""
    at_save: StateMoment | None = None
    """Of the first life: the state when it was saved; None where nothing was."""
    at_start: StateMoment | None = None
    """Of the second life: the state when training went on."""
    batches: list[str] = []
    """A digest of each batch that it trained on, in order; empty where values are not known."""
    batches_before_save: int = 0
    random_got: dict[str, list[str]] = {}
    """Of each generator: digests of its states that were asked for in order to save them."""
    random_set: dict[str, list[str]] = {}
    """Of each generator: digests of the states that it was set to before training."""
    killed: bool = False
    omitted_bytes: int = 0
    """How much more a real run writes than the files here have: what streams were not given, less the labels."""
    save_peaks: dict[str, int] = {}
    """Of each device, ``cpu`` for the host: the most that was allocated between the step and the next forward."""
    resume_peaks: dict[str, int] = {}
    """The same of the second life, up to its first forward."""
    began: float = 0.0
    """When this life began, in seconds since 1970."""
    unlabelled: dict[str, float] = {}
    """Files that were read whose tensors say nothing of their origin, with the times of their last change: the model's
    own files, and what another process made of the checkpoint."""
