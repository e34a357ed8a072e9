"""What a report says of a guarded run, as its JSON has it: how each rank ended, what it held, who waited for whom.

Sizes are bytes, times seconds. Fields that are ``object`` are facts that only the JSON shows, as recorded.
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
    """Where a rank is in a standstill: ``late``, ``waiting``, ``elsewhere`` or ``silent``."""

    rank: int
    state: str
    operator: str | None = None
    call: int | None = None
    place: str | None = None
    function: str | None = None


class HangSummary(msgspec.Struct, frozen=True):
    """A collective for which ranks wait, and those that have not come to it."""

    seconds: float
    median_step: float
    operator: str | None
    waiting: tuple[int, ...]
    late: tuple[int, ...]
    ranks: tuple[Wait, ...]


class StallSummary(msgspec.Struct, frozen=True):
    """A time in which a rank did not get on; ``ended`` where it went on by itself."""

    rank: int
    step: int
    phase: str
    seconds: float
    ended: bool
    operator: str | None
    """The collective that it waited in, the ``call``-th of its group; None where it was elsewhere."""
    call: int | None
    place: str | None
    function: str | None


class ZeroStateSummary(msgspec.Struct, frozen=True, omit_defaults=True):
    """A parameter that takes part in a failure, as ZeRO-3 has it; ``shape`` is the whole one."""

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
    """Tensors of one sort that stand at one place, and where the DeepSpeed config says they should."""

    what: str
    device: str
    dtype: str
    count: int
    bytes: int
    names: tuple[str, ...] = ()
    expected: str | None = None


class PlacementSummary(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Where a rank's state stood before the first step or after it."""

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
    """A fault of the guard itself."""

    part: str
    type: str
    message: str


class GuardedRankSummary(msgspec.Struct, frozen=True):
    """One rank."""

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
    """One rank's steps: a figure a stretch, the highest in it; None where the rank wrote nothing of it."""

    rank: int
    seconds: tuple[float | None, ...]
    """The slowest step."""
    gpu_bytes: tuple[int | None, ...]
    """Reserved by the caching allocator."""
    host_bytes: tuple[int | None, ...]


class StepsOverTime(msgspec.Struct, frozen=True):
    """All ranks' steps, in stretches of ``width`` steps, the first of which begins with step 1."""

    width: int
    ranks: tuple[RankSteps, ...]
    gpu_capacity: int = 0


class GuardedRunSummary(msgspec.Struct, frozen=True):
    """A guarded run."""

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
    """For the picture; the JSON leaves it out, as the folder has the records."""
