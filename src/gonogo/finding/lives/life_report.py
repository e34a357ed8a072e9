"""A run's life in a report: its state when it was saved and killed, and when it was resumed."""

from __future__ import annotations

from typing import Literal

import msgspec

StateStatus = Literal[
    "restored", "partly", "not-read", "not-written", "other-state", "other-dtype", "drawn-anew", "other-base",
    "unchanged", "unknown",
]  # fmt: skip
"""``other-state``: it holds another state's contents; ``unchanged``: untrained, with its initial contents again;
``other-base``: untrained, with other contents than in training (:class:`BaseRow` has where they come from)."""
CounterStatus = Literal["restored", "restarted", "differs", "unknown"]
DataStatus = Literal["goes-on", "from-the-start", "seen-again", "other", "unknown"]
RandomStatus = Literal["restored", "not-read", "not-written", "unknown"]

InterruptedResume = Literal["whole", "half", "mixed", "earlier", "anew", "raises", "unknown"]
"""The outcome of a resume after a kill in the middle of a save; ``anew``: nothing of a checkpoint is read; ``earlier``:
all of the save before; ``mixed``: some states of it, others of the one that was interrupted."""


class Interruption(msgspec.Struct, frozen=True):
    """A kill in the middle of a save, followed by a resume."""

    after: str
    """The file that was written last; only half of it if ``torn``."""
    before: str
    """The file that would be written next; empty if there is none."""
    torn: bool
    kind: InterruptedResume
    why: str = ""
    """The exception, or the states that are lost, or that the save before has left."""
    why_zh: str = ""
    """The same in Chinese, where it differs."""
    from_step: int | None = None
    """Optimizer steps, or else the scheduler's position, with which the resumed run begins; None if it is not known."""
    rank: int | None = None
    """The rank that was killed before it wrote ``before``, while the others went on as far as they could without it;
    None if all were killed at once."""
    removed: bool = False
    """Whether ``after`` was removed rather than written."""
    before_removed: bool = False
    """Whether ``before`` would be removed rather than written."""


class StateRow(msgspec.Struct, frozen=True):
    """One parameter, buffer or optimizer tensor in the first run and in the resumed one."""

    kind: str
    """``parameter``, ``buffer``, ``optimizer`` or ``average`` (EMA, SWA)."""
    name: str
    slot: str
    """For an optimizer: ``exp_avg`` and the like; ``weights``: a copy of the weights that it updates."""
    status: StateStatus
    trained: bool
    written_to: tuple[str, ...] = ()
    """Files, as named by the first life; empty if no file contains it, or the file is a stream without a name."""
    read_from: tuple[str, ...] = ()
    share: float = 1.0
    """The share of its contents that comes from the checkpoint, 0 to 1."""
    dtype: str = ""
    dtype_before: str = ""
    """The dtype in the first life."""
    holds: str = ""
    """With ``other-state``: whose contents it has; with its own name, those of another rank's shard."""
    ranks: tuple[int, ...] = ()


class CounterRow(msgspec.Struct, frozen=True):
    """An optimizer's number of steps, a scheduler's position, or how often an average was updated."""

    kind: str
    """``optimizer``, ``scheduler`` or ``average``."""
    name: str
    saved: float | None
    resumed: float | None
    status: CounterStatus


class RandomRow(msgspec.Struct, frozen=True):
    """A random number generator: ``python``, ``numpy``, ``torch`` (on the CPU) or ``accelerator``."""

    generator: str
    status: RandomStatus


class LifeCosts(msgspec.Struct, frozen=True):
    """The cost of saving and resuming, for the most expensive rank; files are counted over all ranks."""

    save_gpu_bytes: int = 0
    """Peak GPU allocation from the step before the save to the next forward."""
    save_host_bytes: int = 0
    resume_gpu_bytes: int = 0
    """Peak GPU allocation from the start of the second life to its first forward."""
    resume_host_bytes: int = 0
    disk_bytes: int = 0
    """Disk space of the last save, over all ranks; a run that keeps several checkpoints needs this for each."""
    disk_files: int = 0
    shm_bytes: int = 0
    """The most that all ranks of a node have in /dev/shm in the first life: shared tensors, files saved there."""
    pinned_bytes: int = 0
    """What all ranks of a node have pinned on the host when they have saved."""


class SignalledSave(msgspec.Struct, frozen=True):
    """What the run did when it got the signal that a scheduler sends before it ends the job."""

    name: str
    seconds: int
    """How long the program lives after it."""
    handling: str
    """``not-passed-on``: it ends the launcher, which doesn't pass it on; ``default``: the program has no handler, and
    the signal ends it; ``ignored``; ``handled``."""
    step: int
    """Optimizer steps before it."""
    saved_at: int | None
    """Optimizer steps before the save that followed; None if none did."""
    write_seconds: float | None = None
    """How long the save's files take to write."""


class SaveOnDisk(msgspec.Struct, frozen=True):
    """A save of a run, and the disk after it, over all ranks."""

    step: int
    files: int
    nbytes: int
    removed: int
    """Earlier saves that it removed or replaced."""
    kept: int
    """Saves on disk after it."""
    kept_bytes: int
    peak_bytes: int
    """The most that was on disk at a time during this save."""


class DiskNeed(msgspec.Struct, frozen=True):
    """What a run's checkpoints take on disk at the worst time."""

    each_bytes: int
    """Of one checkpoint."""
    copies: int
    """How many there are at a time."""
    nbytes: int
    is_known: bool
    """Whether it is known how many checkpoints the run makes, or keeps; else ``nbytes`` is for the rehearsed ones."""
    is_exact: bool
    """Whether it was seen, or follows from the settings alone."""


BaseStatus = Literal["same", "rounded", "other", "applied-before", "drawn"]
"""A frozen weight in a later program: the same; the same in another dtype or quantization; another model's; one that
already contains the adapter; drawn at random, in whole or in part, in one of the two."""


class BaseRow(msgspec.Struct, frozen=True):
    """Frozen weights that a later program loaded or initialized, compared with those in training."""

    stage: str
    """``resume``, ``convert``, ``merge`` or ``serve``."""
    status: BaseStatus
    is_certain: bool
    """False if it was judged by the names of files that have no contents here, or by the random generator."""
    names: tuple[str, ...]
    """As in training."""
    before: tuple[str, ...] = ()
    """The folders of the files from which they were loaded in training; empty if they were drawn."""
    after: tuple[str, ...] = ()
    dtype_before: str = ""
    dtype: str = ""


class LifeReport(msgspec.Struct, frozen=True):
    """What a run and its resumed second run did with each state: see ``gonogo rehearse --life``."""

    world_before: int
    world_after: int
    resumed_with: tuple[str, ...]
    """The command of the second life."""
    steps_before_save: int
    trains_on: bool
    """Whether the resumed program trained at all."""
    states: tuple[StateRow, ...]
    counters: tuple[CounterRow, ...]
    random: tuple[RandomRow, ...]
    data: DataStatus
    files: tuple[str, ...]
    """The files that the first life wrote."""
    bytes_written: int
    """Bytes that a real run would have written in its first life, on the rank that writes the most."""
    costs: LifeCosts = LifeCosts()
    saves: tuple[SaveOnDisk, ...] = ()
    """The saves of the first life, in order."""
    disk_need: DiskNeed | None = None
    disk_bytes: int | None = None
    """The free disk space, if it is stated."""
    write_bytes_per_second: float = 1e9
    """How fast the disk is written: as stated, or 1 GB/s."""
    signal: SignalledSave | None = None
    interruptions: tuple[Interruption, ...] = ()
    """With ``--kill-between-writes``: each point in the save at which it was killed."""
    moments_not_tried: int = 0
    later_interruptions: tuple[Interruption, ...] = ()
    """The same for the next save, of the resumed run, which has the complete first one beside it."""
    bases: tuple[BaseRow, ...] = ()
    """The frozen weights that the second life loaded or drew again."""
