"""What the measuring process is asked, and what it answers; both as lines of JSON."""

from __future__ import annotations

import msgspec

from gonogo.evidence.rehearsal.record import RankRecord
from gonogo.evidence.rehearsal.work import PhaseWork


class Job(msgspec.Struct, frozen=True):
    """One short rehearsal of the program ``gonogo.virtual.measuring.program``, in a world of a size."""

    name: str
    arguments: tuple[str, ...]
    world_size: int
    local_world_size: int
    answer: str
    """Where the :class:`Measured` or :class:`Facts` goes, as JSON."""
    timeout: float
    steps: int
    capacity: int | None = None
    """What the caching allocator may reserve; None: however much it asks for."""
    describe: bool = False
    """Only say what the model is made of."""


class PhasePeak(msgspec.Struct, frozen=True):
    """The most that was allocated in one phase of the program, and what it was. Bytes."""

    allocated: float
    by_category: dict[str, float]
    """Keys are :data:`gonogo.evidence.rehearsal.record.CATEGORIES`."""


class Measured(msgspec.Struct, frozen=True):
    """What a short rehearsal showed."""

    record: RankRecord
    work: tuple[PhaseWork, ...]
    peaks: dict[str, PhasePeak]
    """By phase: with more layers or samples another phase may be the highest."""


class Facts(msgspec.Struct, frozen=True):
    """What a model is made of."""

    model_class: str
    parameters: int
    trainable: int
    layer_parameters: int
    """Of one repeated layer; 0 where the model has no depth that can be changed."""
    depth: int
    period: int
    """After so many layers the pattern of layers repeats."""
    hidden_size: int
    vocabulary: int
    largest_parameter: int
    """Elements of the largest single parameter."""
    weight_bytes: int
    """What the weights take on one GPU that has all of them."""
    dtype: str = "bf16"


class JobEnded(msgspec.Struct, frozen=True):
    """A job is over: ``""`` where its answer was written, else why there is none."""

    name: str
    why: str
