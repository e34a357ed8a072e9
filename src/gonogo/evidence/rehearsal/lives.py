"""What a rank observed of a run's life: the state it saved, and what of it the resumed program holds.

State is tracked by following copies: from the program's own tensors through its files into the tensors of the second
life. Neither names in a framework nor keys in a file decide.
"""

from __future__ import annotations

from typing import Literal

import msgspec

StateKind = Literal["parameter", "buffer", "optimizer", "average"]
LifePart = Literal["", "first", "second", "convert", "merge", "serve"]
"""Empty: a rehearsal of a single life, which records none of this. After both lives, the name of the stage."""
RESULT_STAGES: tuple[LifePart, ...] = ("convert", "merge", "serve")
"""Stages in which another program reads what the first life saved."""


class StateOrigin(msgspec.Struct, frozen=True):
    """Where a tensor's contents come from: a state of the first run, through a file."""

    kind: str
    """A :data:`StateKind`; ``base``: a file that the first life didn't write; ``drawn``: a random generator; ``rank``:
    received from another one."""
    slot: str = ""
    """For ``base``: the file from which it was first read, whatever file it was saved to since; empty if unknown."""
    name: str = ""
    """For ``rank``, the rank's number; for ``base``, the key in that file."""
    file: str = ""
    key: str = ""
    """Its key in the file, if it has one."""
    share: float = 1.0
    """The share of the tensor's contents that has this origin, 0 to 1."""
    part: str = ""
    """The part of the whole that the writing rank held; empty if it held all."""


class HeldState(msgspec.Struct, frozen=True):
    """A parameter, a buffer, or a tensor of optimizer state that a rank holds."""

    kind: StateKind
    name: str
    """The parameter's name; for an optimizer of something else (a flat partition), its place in the optimizer."""
    shape: tuple[int, ...]
    dtype: str
    slot: str = ""
    """For an optimizer: ``exp_avg``, ``momentum_buffer``; ``weights``: what it updates, if that is no parameter."""
    trained: bool = True
    drawn: bool = False
    """Whether its initial values came from no file: the program initialized them, at random or not."""
    origins: tuple[StateOrigin, ...] = ()
    part: str = ""
    """The part of the whole that this rank holds; empty if it holds all."""
    initial: tuple[StateOrigin, ...] = ()
    """First life, of untrained parameters: where its contents came from when training began."""

    @property
    def identity(self) -> tuple[str, str, str]:
        """The key by which it is matched between the first and the resumed run."""
        return self.kind, self.slot, self.name


class SavedTensor(msgspec.Struct, frozen=True):
    """A tensor in a file, and the states whose contents it holds."""

    file: str
    key: str
    shape: tuple[int, ...]
    dtype: str
    holds: tuple[tuple[str, str, str], ...]
    """(kind, slot, name) of each."""


class TensorSample(msgspec.Struct, frozen=True):
    """A few bytes of a tensor in one of the model's own files, by which it is compared with another file's."""

    dtype: str
    shape: tuple[int, ...]
    digest: str
    """Of bytes spread over the tensor."""
    values: tuple[float, ...] = ()
    """Elements spread over it, which can be compared in another dtype; none of packed dtypes."""


class SavedWeight(msgspec.Struct, frozen=True):
    """A tensor that a converter or a merge has saved, and what it was made of."""

    key: str
    dtype: str
    shape: tuple[int, ...]
    origins: tuple[StateOrigin, ...]


class StateCounter(msgspec.Struct, frozen=True):
    """A counter of a run: an optimizer's steps, a scheduler's position."""

    kind: Literal["optimizer", "scheduler", "average"]
    name: str
    value: float | None
    """None if unknown."""


class StateMoment(msgspec.Struct, frozen=True):
    """All training state of a rank at one point in time."""

    step: int
    """Optimizer steps that this life has completed."""
    held: tuple[HeldState, ...]
    counters: tuple[StateCounter, ...] = ()
    trains_on: bool = True
    """Whether training continues from here; else the program ended without another step."""


class FileEvent(msgspec.Struct, frozen=True):
    """A file opened for writing, a rename, or a removal."""

    at: float
    """Seconds since 1970."""
    path: str
    renamed_from: str = ""
    collectives: int = 0
    """How many collectives of all ranks this one had completed by then."""
    is_removed: bool = False
    """Whether the file or folder was removed."""
    rank: int = 0
    """Whose it is, where those of several ranks are put in order."""
    save: int = 0
    """How many saves this rank had completed by then."""
    others_since: int = 0
    """Communications of some ranks only, since the last collective of all."""
    appends: bool = False
    """Whether it was opened to append to it."""
    is_meanwhile: bool = False
    """Whether the program did this while it had a save in the background under way."""


def is_at_or_below(path: str, folder: str) -> bool:
    """Whether a path is the folder, or in it."""
    return path == folder or path.startswith(f"{folder}/")


class JobSignal(msgspec.Struct, frozen=True):
    """What a scheduler sends to a job before it ends it."""

    name: str
    """``SIGUSR1``."""
    number: int
    seconds: int
    """How long before the end."""
    launcher: str = ""
    """The launcher that the scheduler sends it to; empty if the program gets it directly."""
    passed: tuple[str, ...] = ()
    """The signals that the launcher passes on."""
    grace_seconds: int | None = None
    """How long after passing it on the launcher kills the program; None if it doesn't."""

    @property
    def reaches_program(self) -> bool:
        """Whether the program gets it at all."""
        return not self.launcher or self.name in self.passed

    @property
    def seconds_left(self) -> int:
        """How long the program lives after it."""
        return self.seconds if self.grace_seconds is None else min(self.seconds, self.grace_seconds)


SignalHandling = Literal["not-passed-on", "default", "ignored", "handled"]
"""``default``: the program has no handler, and the signal ends it; ``not-passed-on``: its launcher has none."""


class SignalOutcome(msgspec.Struct, frozen=True):
    """What a rank did when it got the job's signal."""

    handling: SignalHandling
    step: int
    """Optimizer steps before it."""
    saved_at: int | None = None
    """Optimizer steps before the save that followed; None if none did."""


class RankSave(msgspec.Struct, frozen=True):
    """What one save of a rank left on disk."""

    step: int
    """Optimizer steps before it."""
    files: dict[str, int]
    """The sizes of the files that this rank wrote since the save before, as they are called when training goes on."""
    omitted_bytes: int = 0
    """Bytes that a real run writes beyond these files."""


BackgroundSaveEnd = Literal["awaited", "overlapped", "exit", "lost", "without-group", "later"]
"""When a save in the background was complete, if it was: the program waited for it; it began the next save; it ended,
and Python waited; it ended, and Python didn't; it had destroyed the process group before; it trained on for so long
that the save was taken to be complete."""


class BackgroundSave(msgspec.Struct, frozen=True):
    """A save that a thread of the program wrote, held until the program waited for it."""

    place: str
    """Where the program began it."""
    step: int
    """Optimizer steps before it."""
    steps_meanwhile: int
    ended: BackgroundSaveEnd
    files: tuple[str, ...]
    error: str = ""
    """What the thread raised."""


class SavePlan(msgspec.Struct, frozen=True):
    """How many checkpoints a run will make and keep, by its own settings."""

    saves: int | None = None
    """How many it makes in all; None if unknown."""
    is_exact: bool = False
    """Whether that follows from the settings alone, not from the rehearsed data."""
    kept: int | None = None
    """How many it keeps (``save_total_limit``); None if it removes none."""


class RankRunState(msgspec.Struct):
    """What a rank observed of its state in one run: the first run, or the one that resumes from its checkpoint."""

    part: LifePart
    saved: list[SavedTensor] = []
    files: list[str] = []
    """Files with state that it wrote or read."""
    written: list[str] = []
    """All files that it opened for writing, from its first step on."""
    saves: list[RankSave] = []
    """First life: each of its saves after which training went on."""
    save_plan: SavePlan | None = None
    background: list[BackgroundSave] = []
    """Saves that it wrote in threads of its own."""
    signal: SignalOutcome | None = None
    """First life: what it did at the job's signal; None if there was none."""
    file_reads: list[FileEvent] = []
    """First life: files that it opened for reading, from its first step on, other than code."""
    file_events: list[FileEvent] = []
    """The same in order, with renames."""
    at_save: StateMoment | None = None
    """First life: the state when it was saved; None if it never was."""
    at_start: StateMoment | None = None
    """Second life: the state when training resumed."""
    batches: list[str] = []
    """A digest of each batch that it trained on, in order; empty if values are unknown."""
    batches_before_save: int = 0
    random_got: dict[str, list[str]] = {}
    """For each random generator: digests of the states that the program read in order to save them."""
    random_set: dict[str, list[str]] = {}
    """For each random generator: digests of the states that it was set to before training."""
    killed: bool = False
    omitted_bytes: int = 0
    """Bytes that a real run writes beyond the files here: data kept out of streams, less the labels in its place."""
    save_peaks: dict[str, int] = {}
    """For each device (``cpu`` is the host): the peak allocation between a step and the next forward."""
    shm_bytes: int = 0
    """The most that its tensors took of /dev/shm, because they were shared with other processes."""
    pinned_bytes: int = 0
    """What was pinned on the host when training went on after a save, or while one was under way."""
    resume_peaks: dict[str, int] = {}
    """The same for the second life, up to its first forward."""
    began: float = 0.0
    """When this life began, in seconds since 1970."""
    unlabelled: dict[str, float] = {}
    """Files that were read whose tensors don't reveal their origin, with their modification times.

    These are the model's own files, and what another process made from the checkpoint.
    """
    samples: dict[str, dict[str, TensorSample]] = {}
    """For each of the model's own files, what its tensors are like, by key; none of those whose bytes aren't here."""
    weights: list[SavedWeight] = []
    """Of a conversion or a merge: all weights that it saved."""
