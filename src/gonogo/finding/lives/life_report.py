"""What a report says of a run's life: its state when it was saved and killed, and when it was resumed."""

from __future__ import annotations

from typing import Literal

import msgspec

StateStatus = Literal[
    "restored", "partly", "not-read", "not-written", "other-state", "other-dtype", "drawn-anew", "unchanged", "unknown"
]
"""``other-state``: it holds what was another's; ``unchanged``: not trained, and had again from where it first came."""
CounterStatus = Literal["restored", "restarted", "differs", "unknown"]
DataStatus = Literal["goes-on", "from-the-start", "seen-again", "other", "unknown"]
RandomStatus = Literal["restored", "not-read", "not-written", "unknown"]

InterruptedResume = Literal["whole", "half", "anew", "raises", "unknown"]
"""What a resume comes to that follows a kill in the middle of a save; ``anew``: it reads nothing of the checkpoint."""


class Interruption(msgspec.Struct, frozen=True):
    """Killed in the middle of a save, and resumed."""

    after: str
    """The file that was written last; half of it, where it is ``torn``."""
    before: str
    """The file that comes next; empty where none does."""
    torn: bool
    kind: InterruptedResume
    why: str = ""
    """The exception, or the states that are lost."""
    why_zh: str = ""
    """The same in Chinese, where it differs."""


class StateRow(msgspec.Struct, frozen=True):
    """One parameter, buffer or optimizer tensor over both lives."""

    kind: str
    """``parameter``, ``buffer``, ``optimizer`` or ``average`` (EMA, SWA)."""
    name: str
    slot: str
    """Of an optimizer: ``exp_avg`` and the like; ``weights``: a copy of the weights that it steps."""
    status: StateStatus
    trained: bool
    written_to: tuple[str, ...] = ()
    """Files, as the first life named them; empty where no file has it, or the file is a stream without a name."""
    read_from: tuple[str, ...] = ()
    share: float = 1.0
    """The share of it that comes from the checkpoint."""
    dtype: str = ""
    dtype_before: str = ""
    """In the first life."""
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
    """A generator of random numbers: ``python``, ``numpy``, ``torch`` (on the CPU) or ``accelerator``."""

    generator: str
    status: RandomStatus


class LifeCosts(msgspec.Struct, frozen=True):
    """What saving and resuming take, of the rank that takes most; files are those of all ranks together."""

    save_gpu_bytes: int = 0
    """The most that is allocated on a GPU from the step before the save to the next forward."""
    save_host_bytes: int = 0
    resume_gpu_bytes: int = 0
    """The same from the start of the second life to its first forward."""
    resume_host_bytes: int = 0
    disk_bytes: int = 0
    """What one save leaves on disk, of all ranks; of a run that keeps several, each."""
    disk_files: int = 0


class LifeReport(msgspec.Struct, frozen=True):
    """Both lives of a run."""

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
    """What the first life wrote."""
    bytes_written: int
    """What a real run would have written in its first life, on the rank that wrote most."""
    costs: LifeCosts = LifeCosts()
    interruptions: tuple[Interruption, ...] = ()
    """With ``--kill-between-writes``: each moment of the save at which it was killed."""
    moments_not_tried: int = 0
