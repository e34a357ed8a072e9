"""The records of one rank under the guard of a live training: one JSON object per line, distinguished by ``kind``.

Sizes are in bytes, times in seconds since the epoch.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from gonogo.evidence.rehearsal.record import Operand
from gonogo.finding.frame import Frame

Phase = Literal["load", "init", "forward", "backward", "step", "between", "exit"]
"""The current phase of a rank; ``between`` is the program's own code between two steps."""
WorldSize = Annotated[int, msgspec.Meta(ge=1, le=1 << 20)]
"""Larger values come from damaged lines; the limit matters because ranks are enumerated."""


class _Record(msgspec.Struct, frozen=True, tag_field="kind", omit_defaults=True):
    """Base of all records that a rank appends to its file."""

    time: float


class GpuRecord(msgspec.Struct, frozen=True):
    """The accelerator of a rank; ``bytes`` is its total memory."""

    name: str
    bytes: int
    device: str = ""
    """The device name in torch: ``cuda:0``."""
    driver: str = ""
    uuid: str = ""


class StartRecord(_Record, frozen=True, tag="start", omit_defaults=True):
    """The start of a rank: its identity and environment."""

    rank: int = 0
    local_rank: int = 0
    world_size: WorldSize = 1
    host: str = ""
    pid: int = 0
    argv: tuple[str, ...] = ()
    python: str = ""
    versions: dict[str, str] = {}
    """Versions by package (``torch``, ``deepspeed``, ``transformers``, ``nccl`` …), as imported or installed here."""
    cuda: str = ""
    driver: str = ""
    gpu: GpuRecord | None = None
    nccl_environment: dict[str, str] = {}
    """Environment variables of NCCL, gloo and torch.distributed, without secrets."""
    gonogo: str = ""
    restarts: int = 0
    """Number of previous restarts by the launcher."""


class JoinRecord(_Record, frozen=True, tag="joined", omit_defaults=True):
    """The facts that a rank states about its training before the first step. Unknown facts are left out."""

    facts: dict[str, str] = {}
    """Facts by name, with values as text.

    Names are ``torch`` … (versions), ``gpu``, ``driver``, ``cuda``, ``NCCL_…``, ``deepspeed-config``, ``model``,
    ``parameters``, ``trainable-parameters``, ``dtypes``, ``dataset-length``, ``seed`` …
    """
    details: dict[str, dict[str, str]] = {}
    """The inputs of hashed facts if they are small, such as the flattened settings of the config."""
    step: int = 0
    world_size: WorldSize = 1
    """As stated by the process group."""
    backend: str = ""


class PlacedTensors(msgspec.Struct, frozen=True, omit_defaults=True):
    """Tensors of one kind on one device."""

    what: Literal["parameter", "buffer", "optimizer-state", "zero-partition", "fp32-partition", "master-weights"]
    device: str
    dtype: str
    count: int
    bytes: int
    names: tuple[str, ...] = ()
    """At most five of them."""
    expected: str | None = None
    """The device (or device type) required by the DeepSpeed config; None if it requires none."""


class PlacementSnapshot(_Record, frozen=True, tag="census", omit_defaults=True):
    """On which devices the tensors were before the first step (``moment`` ``start``) or after (``first-step``)."""

    places: tuple[PlacedTensors, ...] = ()
    moment: Literal["start", "first-step"] = "start"
    zero_stage: int = 0
    offload_parameters: str = "none"
    offload_optimizer: str = "none"
    host_available: int = 0
    host_total: int = 0
    gpu_free: int = 0
    gpu_total: int = 0
    gpu_allocated: int = 0
    gpu_reserved: int = 0

    @property
    def misplaced(self) -> tuple[PlacedTensors, ...]:
        """The tensors that are on another device than the config requires."""
        return tuple(
            place
            for place in self.places
            if place.expected is not None and place.device.partition(":")[0] != place.expected.partition(":")[0]
        )


class Difference(msgspec.Struct, frozen=True):
    """A fact that differs between ranks."""

    fact: str
    values: dict[str, tuple[int, ...]]
    """Ranks by value, the most common value first."""
    details: dict[str, dict[str, tuple[int, ...]]] = {}
    """If the fact is a hash of settings: the settings that differ, each with its values and ranks."""


class RankComparisonRecord(_Record, frozen=True, tag="compared", omit_defaults=True):
    """The result of comparing the ranks before the first step, written by rank 0."""

    differences: tuple[Difference, ...] = ()
    missing: tuple[int, ...] = ()
    """Ranks that didn't state their facts in time."""
    waited: float = 0.0
    sum_checked: bool | None = None
    """Whether an all_reduce of known numbers gave the expected result; None if it was not run."""
    world_size: WorldSize = 1


class RankMemoryRecord(_Record, frozen=True, omit_defaults=True):
    """Memory used and available on a rank at one moment, in bytes; 0 if not measured."""

    host_bytes: int = 0
    """Resident memory (RSS) of this process."""
    host_available: int = 0
    """Memory available on the machine or in the container."""
    gpu_allocated: int = 0
    gpu_reserved: int = 0
    gpu_used: int = 0
    """Memory used by all processes on the GPU."""
    gpu_total: int = 0


class StepRecord(RankMemoryRecord, frozen=True, tag="step", omit_defaults=True):
    """Optimizer steps up to number ``step``, and the memory of the rank; several quick steps share a record."""

    step: int = 0
    steps: int = 1
    """Number of steps in this record."""
    seconds: float = 0.0
    """Their mean duration."""
    slowest: float = 0.0
    """The longest duration, in seconds."""


class WarningRecord(_Record, frozen=True, tag="warning", omit_defaults=True):
    """A problem that will stop or spoil the training if it continues."""

    what: Literal["host-memory", "gpu-memory", "nonfinite-loss"] = "host-memory"
    step: int = 0
    bytes_per_step: float = 0.0
    bytes_left: int = 0
    steps_left: float = 0.0
    value: str = ""
    """The loss, if it is not finite."""


class CalledCollective(msgspec.Struct, frozen=True, omit_defaults=True):
    """A collective, as called by a rank."""

    operator: str
    group: str
    """torch's name of the process group, which is the same on all its ranks."""
    ranks: tuple[int, ...]
    """Global ranks of the group."""
    index: int
    """The number of collectives that this rank had called in this group before.

    Point-to-point operations (``send`` …) and calls that create groups (``init_process_group``, ``new_group``) are
    counted separately.
    """
    shapes: tuple[tuple[int, ...], ...] = ()
    """Shapes of the tensors that the rank passed."""
    dtype: str = ""
    peer: int | None = None
    """The global rank of the root (source or destination), or the peer of a point-to-point operation."""
    frames: tuple[Frame, ...] = ()
    """The stack of the call, outermost first, up to the innermost frames outside torch."""
    phase: Phase = "load"
    step: int = 0
    """Number of completed optimizer steps, as in all of these records."""
    ago: float = 0.0
    """Seconds between the call and the record that contains it."""
    returned: bool = False
    """Whether the call returned. With NCCL, that only means that it was enqueued; see :class:`CollectiveQueue`."""


class CollectiveQueue(msgspec.Struct, frozen=True):
    """The progress of a group's collectives as its process group counts them, including those called from C++."""

    group: str
    enqueued: int
    """Number of collectives called so far."""
    started: int | None = None
    """Number of the last collective that NCCL started on the GPU, from 1; None if unknown (gloo)."""
    completed: int | None = None
    """Number of the last collective that NCCL completed."""


class ThreadStack(msgspec.Struct, frozen=True):
    """A thread and its stack, outermost call first."""

    name: str
    frames: tuple[Frame, ...]


class StallRecord(_Record, frozen=True, tag="stall", omit_defaults=True):
    """A step (or the startup) that takes much longer than expected; written repeatedly, at growing intervals."""

    step: int = 0
    phase: Phase = "load"
    seconds: float = 0.0
    """Seconds since the last sign of progress."""
    median: float = 0.0
    """Median duration of the last steps; 0 before the first step."""
    threads: tuple[ThreadStack, ...] = ()
    """The main thread first."""
    collectives: tuple[CalledCollective, ...] = ()
    """The most recent collectives, the latest last."""
    counts: dict[str, int] = {}
    """Number of collectives that the rank had called in each group, by group name.

    Point-to-point operations are counted under ``"<group> between two"``, calls that create groups under
    ``"groups"``.
    """
    queues: tuple[CollectiveQueue, ...] = ()
    module: str | None = None
    """Path of the innermost module whose forward was running."""
    again: int = 0
    """Number of earlier records of this stall."""


class StallEndRecord(_Record, frozen=True, tag="resumed", omit_defaults=True):
    """A recorded stall has ended by itself."""

    step: int = 0
    seconds: float = 0.0


class NonFiniteRecord(_Record, frozen=True, tag="nonfinite", omit_defaults=True):
    """The first module or gradient with a NaN or infinite value."""

    step: int = 0
    what: Literal["loss", "gradient", "activation", "parameter"] = "loss"
    module: str | None = None
    module_class: str | None = None
    parameter: str | None = None
    inputs_finite: bool | None = None
    """Whether the module's inputs were finite."""
    nan: int = 0
    infinite: int = 0
    elements: int = 0
    """Total number of elements of the tensor, of which ``nan`` and ``infinite`` are not finite."""
    dtype: str = ""


class ZeroState(msgspec.Struct, frozen=True, omit_defaults=True):
    """The ZeRO-3 state of a parameter involved in a failure."""

    parameter: str
    status: str
    """``AVAILABLE``, ``NOT_AVAILABLE`` or ``INFLIGHT``."""
    shape: tuple[int, ...]
    """The shape of the full parameter."""
    partition_device: str = ""
    partition_elements: int = 0
    """Elements of the flat partition on this rank."""


class ExceptionRecord(_Record, frozen=True, tag="exception", omit_defaults=True):
    """An exception raised by a forward, a backward, a step or the program."""

    type: str = ""
    message: str = ""
    frames: tuple[Frame, ...] = ()
    """Outermost call first."""
    traceback: str = ""
    """The traceback as printed by Python."""
    fatal: bool = False
    """True once it has left the program; False in records of the same exception while it propagates."""
    thread: str = ""
    """The name of the thread that it ended, if not the main thread."""
    module: str | None = None
    module_class: str | None = None
    operands: tuple[Operand, ...] = ()
    """Tensors in the innermost frames; ``name`` is the expression or variable."""
    zero: tuple[ZeroState, ...] = ()
    step: int = 0
    phase: Phase = "load"
    collectives: tuple[CalledCollective, ...] = ()
    counts: dict[str, int] = {}


class GuardFaultRecord(_Record, frozen=True, tag="fault", omit_defaults=True):
    """An internal error of the guard, after which the guard (or the named part) is switched off."""

    part: str = ""
    type: str = ""
    message: str = ""
    traceback: str = ""


class EndRecord(_Record, frozen=True, tag="end", omit_defaults=True):
    """The end of a rank, if Python could observe it."""

    reason: Literal["exit", "exception", "signal"] = "exit"
    status: int | None = None
    """The exit status, if known."""
    signal: int | None = None
    step: int = 0
    collectives: tuple[CalledCollective, ...] = ()
    """The most recent collectives, if a signal ended the rank."""
    frames: tuple[Frame, ...] = ()
    """The stack of the main thread, if a signal ended the rank."""
    counts: dict[str, int] = {}


Record = (
    StartRecord
    | JoinRecord
    | PlacementSnapshot
    | RankComparisonRecord
    | StepRecord
    | WarningRecord
    | StallRecord
    | StallEndRecord
    | NonFiniteRecord
    | ExceptionRecord
    | GuardFaultRecord
    | EndRecord
)
