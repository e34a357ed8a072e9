"""What a report says of a rehearsal, as its JSON has it: the world, and each rank that was run. Sizes are bytes.

Fields that are ``object`` are facts that only the JSON shows, as the rank recorded them.
"""

from __future__ import annotations

import msgspec

from gonogo.finding.as_run import AsRun
from gonogo.finding.divergence import Divergence, Frame


class Operand(msgspec.Struct, frozen=True):
    """A tensor that the operator which failed was given; ``kind`` is what it is in the training."""

    name: str
    device: str
    dtype: str
    shape: tuple[int, ...]
    parameter: str | None
    kind: str


class Failure(msgspec.Struct, frozen=True):
    """The exception that ended a rank."""

    type: str
    message: str
    frames: object
    phase: str
    step: int
    operator: str | None
    operands: tuple[Operand, ...]
    module: str | None
    module_class: str | None
    reading: str | None
    cause: str
    traceback: str
    origin: object
    user_frame: Frame | None = None
    """The innermost frame of the user's own code, its path as seen from the folder of the command."""
    library_frame: Frame | None = None


class ModuleBytes(msgspec.Struct, frozen=True):
    """What a module holds at a device's peak."""

    module: str
    bytes: int


class ModuleMemory(msgspec.Struct, frozen=True):
    """What the ``count`` modules of one place hold at a peak; ``module`` has ``*`` for the numbers of lists.

    An empty ``module`` is what belongs to none.
    """

    module: str
    by_category: dict[str, int]
    count: int = 1

    @property
    def bytes(self) -> int:
        """All that they hold."""
        return sum(self.by_category.values())


class PhaseMemory(msgspec.Struct, frozen=True):
    """The most that a device held in a phase, and how that was divided."""

    phase: str
    bytes: int
    by_category: dict[str, int]


class Device(msgspec.Struct, frozen=True):
    """One device's memory over the whole program; ``by_category`` is what holds it at the peak."""

    device: str
    peak_allocated_bytes: int
    peak_reserved_bytes: int
    allowance_bytes: int
    total_bytes: int
    peak_phase: str
    peak_step: int
    by_category: dict[str, int]
    top_modules: tuple[ModuleBytes, ...]
    shortage: object
    modules: tuple[ModuleMemory, ...] = ()
    """All that holds memory at the peak: of each category it adds up to ``by_category``."""
    percent: float = 0.0
    """Of the device: what is reserved and what is taken beside it."""
    free_bytes: int = 0
    """What is left then; negative where it does not fit."""
    phases: tuple[PhaseMemory, ...] | msgspec.UnsetType = msgspec.UNSET
    """The peak of each phase of a training that rolls out; not set for others."""


class MemoryTimeline(msgspec.Struct, frozen=True):
    """A device's memory over time, in points, each the highest moment of a stretch of ``allocations`` allocations.

    ``by_category`` and ``reserved`` are bytes; ``reached_by``, ``modules``,
    ``operators`` and ``places`` (``FILE:LINE FUNCTION``) say which allocation was the last of it.
    """

    device: str
    allocations: int
    by_category: dict[str, tuple[int, ...]]
    reserved: tuple[int, ...]
    phases: tuple[str, ...]
    steps: tuple[int, ...]
    reached_by: tuple[str, ...]
    modules: tuple[str, ...]
    operators: tuple[str, ...] = ()
    places: tuple[str, ...] = ()


class CollectiveTotal(msgspec.Struct, frozen=True):
    """How often an operator ran, and the bytes that the rank put in."""

    operator: str
    count: int
    bytes: int


class Collectives(msgspec.Struct, frozen=True):
    """The collectives of a rank."""

    count: int
    bytes: int
    by_operator: tuple[CollectiveTotal, ...]


class Assumption(msgspec.Struct, frozen=True):
    """What was taken for a value that no rehearsal can know, where and how often."""

    what: str
    where: str
    count: int
    what_zh: str = ""


class Unsupported(msgspec.Struct, frozen=True):
    """What could not be rehearsed."""

    what: str
    where: str
    why: str
    why_zh: str = ""


class Rank(msgspec.Struct, frozen=True):
    """One rank that was run. ``peak_…`` without a device are of its own device."""

    rank: int
    local_rank: int
    device: str
    outcome: str
    steps: int
    operators: int
    phases: tuple[str, ...]
    expected_phases: tuple[str, ...]
    last_activity: str
    stack: object
    parameter_count: int
    peak_allocated_bytes: int
    peak_reserved_bytes: int
    peak_by_category: dict[str, int]
    host_peak_bytes: int
    host_pinned_peak_bytes: int
    host_peak_by_category: dict[str, int]
    devices: tuple[Device, ...]
    collectives: Collectives
    assumptions: tuple[Assumption, ...]
    unsupported: tuple[Unsupported, ...]
    unused_parameters: tuple[str, ...]
    parameters_without_gradient: tuple[str, ...]
    left_on_cpu: object
    failure: Failure | None
    events: tuple[str, ...]
    as_run: AsRun | None = None
    host_modules: tuple[ModuleMemory, ...] = ()
    """Of the peak of host memory; see :attr:`Device.modules`."""
    timelines: tuple[MemoryTimeline, ...] = ()
    """For what draws them; the JSON is without."""


class NodeMemory(msgspec.Struct, frozen=True):
    """Host memory of the fullest node; ``estimated`` where not all of its ranks were run."""

    peak_bytes: int
    pinned_bytes: int
    capacity_bytes: int | None
    ranks: int
    estimated: bool
    percent: float | None = None
    """The peak, of the capacity."""


class Rehearsal(msgspec.Struct, frozen=True):
    """A rehearsal. ``seconds`` is the only value that differs between two rehearsals of the same program."""

    command: tuple[str, ...]
    launcher: str
    world_size: int
    nodes: int
    ranks_per_node: int
    accelerator: str
    accelerator_bytes: int
    allowance_bytes: int
    steps: int
    seconds: float
    host_per_node: NodeMemory | None
    versions: dict[str, str]
    divergence: Divergence | None
    ranks: tuple[Rank, ...]
    seconds_of_step: float | None = None
    """By plan's roofline: it compares, and is no promise. None where no work was counted."""
    tokens_per_second_per_gpu: float | None = None
    """At that speed, with the longest samples that were seen."""
