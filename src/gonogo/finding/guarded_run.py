"""A guarded run in a report, as its JSON shows it: how each rank ended, its memory, which ranks waited for which.

Sizes are in bytes, times in seconds. Fields of type ``object`` are recorded facts that only the JSON shows.
"""

from __future__ import annotations

import msgspec

from gonogo.finding.rehearsal import Operand


class DeathSummary(msgspec.Struct, frozen=True):
    """How the rank that failed first ended."""

    rank: int
    how: str
    time: float | None
    signal: str | None
    status: int | None
    consequence: bool


class Wait(msgspec.Struct, frozen=True):
    """What a rank does during a hang, in ``state``: ``late``, ``waiting``, ``elsewhere`` or ``silent``."""

    rank: int
    state: str
    operator: str | None = None
    call: int | None = None
    place: str | None = None
    function: str | None = None


class HangSummary(msgspec.Struct, frozen=True):
    """A collective for which ranks wait, and the ranks that haven't reached it."""

    seconds: float
    median_step: float
    operator: str | None
    waiting: tuple[int, ...]
    late: tuple[int, ...]
    ranks: tuple[Wait, ...]


class StallSummary(msgspec.Struct, frozen=True):
    """A period in which a rank made no progress; ``ended`` if it continued by itself."""

    rank: int
    step: int
    phase: str
    seconds: float
    ended: bool
    operator: str | None
    """The collective in which it waited, the ``call``-th of its group; None if it was elsewhere."""
    call: int | None
    place: str | None
    function: str | None


class ZeroStateSummary(msgspec.Struct, frozen=True, omit_defaults=True):
    """A parameter involved in a failure, as seen by ZeRO-3; ``shape`` is the full shape."""

    parameter: str
    status: str
    shape: tuple[int, ...]
    partition_device: str = ""
    partition_elements: int = 0


class GuardedFailure(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The exception that ended a rank."""

    kind: str
    time: float
    type: str = ""
    message: str = ""
    frames: object = ()
    traceback: str = ""
    fatal: bool = False
    thread: str = ""
    module: str | None = None
    module_class: str | None = None
    operands: tuple[Operand, ...] = ()
    zero: tuple[ZeroStateSummary, ...] = ()
    step: int = 0
    phase: str = "load"
    collectives: object = ()
    counts: dict[str, int] = {}


class PlaceSummary(msgspec.Struct, frozen=True, omit_defaults=True):
    """Tensors of one kind on one device, and the device that the DeepSpeed config specifies for them."""

    what: str
    device: str
    dtype: str
    count: int
    bytes: int
    names: tuple[str, ...] = ()
    expected: str | None = None


class PlacementSummary(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The devices of a rank's state before or after the first step."""

    kind: str
    time: float
    places: tuple[PlaceSummary, ...] = ()
    moment: str = "start"
    zero_stage: int = 0
    offload_parameters: str = "none"
    offload_optimizer: str = "none"
    host_available: int = 0
    host_total: int = 0
    gpu_free: int = 0
    gpu_total: int = 0
    gpu_allocated: int = 0
    gpu_reserved: int = 0


class GuardFault(msgspec.Struct, frozen=True):
    """An internal error of the guard itself."""

    part: str
    type: str
    message: str


class GuardedRankSummary(msgspec.Struct, frozen=True):
    """One rank of a guarded run: how it ended, how far it got, and its memory peaks."""

    rank: int
    local_rank: int | None
    host: str | None
    pid: int | None
    gpu: object
    versions: dict[str, str]
    outcome: str
    signal: str | None
    steps: int
    seconds_per_step: float | None
    last_seen: float | None
    host_peak_bytes: int
    gpu_peak_reserved_bytes: int
    gpu_peak_used_bytes: int
    failure: GuardedFailure | None
    census: PlacementSummary | None
    stalls: int
    warnings: object
    nonfinite: object
    guard_faults: tuple[GuardFault, ...]
    restarts: int


class RankSteps(msgspec.Struct, frozen=True):
    """One rank's steps: for each interval, the highest value in it; None if the rank recorded nothing there."""

    rank: int
    seconds: tuple[float | None, ...]
    """The duration of the slowest step."""
    gpu_bytes: tuple[int | None, ...]
    """Reserved by the caching allocator."""
    host_bytes: tuple[int | None, ...]


class StepsOverTime(msgspec.Struct, frozen=True):
    """All ranks' steps, in intervals of ``width`` steps, starting with step 1."""

    width: int
    ranks: tuple[RankSteps, ...]
    gpu_capacity: int = 0


class GuardedRunSummary(msgspec.Struct, frozen=True):
    """A guarded run: how it ended as a whole, and what each rank recorded."""

    folder: str
    command: tuple[str, ...]
    exit_status: int | None
    world_size: int
    hosts: tuple[str, ...]
    started: float
    seconds: float | None
    steps: int
    first_failed: DeathSummary | None
    standstill: HangSummary | None
    ranks: tuple[GuardedRankSummary, ...]
    missing_ranks: tuple[int, ...]
    launches: object
    stalled: tuple[StallSummary, ...] = ()
    over_time: StepsOverTime | None = None
    """For the chart; omitted in the JSON, since the folder contains the records."""
