"""The records of one rank under the guard of a live training: one JSON object a line, told apart by ``kind``.

Sizes are bytes, times are seconds since the epoch.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from gonogo.evidence.rehearsal.record import Operand
from gonogo.finding.frame import Frame

Phase = Literal["load", "init", "forward", "backward", "step", "between", "exit"]
"""What a rank was doing; ``between`` is the program's own code between two steps."""
WorldSize = Annotated[int, msgspec.Meta(ge=1, le=1 << 20)]
"""A line with any other is damaged: the ranks of a world are counted one by one."""


class _Record(msgspec.Struct, frozen=True, tag_field="kind", omit_defaults=True):
    time: float


class GpuRecord(msgspec.Struct, frozen=True):
    """The accelerator that a rank computes on; ``bytes`` is its whole memory."""

    name: str
    bytes: int
    device: str = ""
    """Its name in torch: ``cuda:0``."""
    driver: str = ""
    uuid: str = ""


class StartRecord(_Record, frozen=True, tag="start", omit_defaults=True):
    """A rank began: who it is, and what it runs on."""

    rank: int = 0
    local_rank: int = 0
    world_size: WorldSize = 1
    host: str = ""
    pid: int = 0
    argv: tuple[str, ...] = ()
    python: str = ""
    versions: dict[str, str] = {}
    """By package (``torch``, ``deepspeed``, ``transformers``, ``nccl`` …), as imported or installed in this rank."""
    cuda: str = ""
    driver: str = ""
    gpu: GpuRecord | None = None
    nccl_environment: dict[str, str] = {}
    """Variables of NCCL, gloo and torch's distributed part; none that may hold a secret."""
    gonogo: str = ""
    restarts: int = 0
    """How often the launcher had restarted it."""


class JoinRecord(_Record, frozen=True, tag="joined", omit_defaults=True):
    """What a rank states of its training before the first step. What is not known is left out."""

    facts: dict[str, str] = {}
    """By name: ``torch`` … (versions), ``gpu``, ``driver``, ``cuda``, ``NCCL_…``, ``deepspeed-config``, ``model``,
    ``parameters``, ``trainable-parameters``, ``dtypes``, ``dataset-length``, ``seed`` …; values as text."""
    details: dict[str, dict[str, str]] = {}
    """What hashes among the facts were made of, where that is small: the config's settings, flat."""
    step: int = 0
    world_size: WorldSize = 1
    """As the process group says."""
    backend: str = ""


class PlacedTensors(msgspec.Struct, frozen=True, omit_defaults=True):
    """Tensors of one sort that stand at one place."""

    what: Literal["parameter", "buffer", "optimizer-state", "zero-partition", "fp32-partition", "master-weights"]
    device: str
    dtype: str
    count: int
    bytes: int
    names: tuple[str, ...] = ()
    """Up to five of them."""
    expected: str | None = None
    """The device (or type of device) where the DeepSpeed config says they should be; None where it does not say."""


class PlacementSnapshot(_Record, frozen=True, tag="census", omit_defaults=True):
    """Where everything stood before the first step (``moment`` ``start``) or after it (``first-step``); bytes."""

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
        """The places where something is that the config says should be elsewhere."""
        return tuple(
            place
            for place in self.places
            if place.expected is not None and place.device.partition(":")[0] != place.expected.partition(":")[0]
        )


class Difference(msgspec.Struct, frozen=True):
    """A fact in which ranks differ."""

    fact: str
    values: dict[str, tuple[int, ...]]
    """Ranks by value; the value of most of them first."""
    details: dict[str, dict[str, tuple[int, ...]]] = {}
    """Where the fact is a hash of settings: the settings that differ, each with its values and ranks."""


class Compared(_Record, frozen=True, tag="compared", omit_defaults=True):
    """What came of comparing the ranks before the first step; rank 0 writes it."""

    differences: tuple[Difference, ...] = ()
    missing: tuple[int, ...] = ()
    """Ranks that had not stated their facts in the time given."""
    waited: float = 0.0
    sum_checked: bool | None = None
    """Whether an all_reduce of known numbers gave what it has to give; None where it was not made."""
    world_size: WorldSize = 1


class Memory(_Record, frozen=True, omit_defaults=True):
    """What a rank holds, and what is left, at one moment, in bytes; zeros where it was not looked at."""

    host_bytes: int = 0
    """Resident memory of this process."""
    host_available: int = 0
    """What the machine (or the container) still has."""
    gpu_allocated: int = 0
    gpu_reserved: int = 0
    gpu_used: int = 0
    """By all processes on the GPU."""
    gpu_total: int = 0


class Step(Memory, frozen=True, tag="step", omit_defaults=True):
    """Optimizer steps, up to number ``step``, and what the rank held; quick steps share a record."""

    step: int = 0
    steps: int = 1
    """How many it stands for."""
    seconds: float = 0.0
    """Their mean length."""
    slowest: float = 0.0
    """The longest of them, in seconds."""


class WarningRecord(_Record, frozen=True, tag="warning", omit_defaults=True):
    """Something that will end the training if it goes on, or spoils it."""

    what: Literal["host-memory", "gpu-memory", "nonfinite-loss"] = "host-memory"
    step: int = 0
    bytes_per_step: float = 0.0
    bytes_left: int = 0
    steps_left: float = 0.0
    value: str = ""
    """The loss, where it is not finite."""


class CalledCollective(msgspec.Struct, frozen=True, omit_defaults=True):
    """One collective as a rank called it."""

    operator: str
    group: str
    """torch's name of the process group: the same in all its ranks."""
    ranks: tuple[int, ...]
    """Global ranks of the group."""
    index: int
    """How many collectives this rank had called in this group before. Calls between two ranks (``send`` …) and those
    that make groups (``init_process_group``, ``new_group``) are counted apart."""
    shapes: tuple[tuple[int, ...], ...] = ()
    """Of each tensor that the rank put in."""
    dtype: str = ""
    peer: int | None = None
    """Global rank that sends to all, gets from all, or is sent to or received from alone."""
    frames: tuple[Frame, ...] = ()
    """Where it was called, outermost call first: the innermost frames outside torch."""
    phase: Phase = "load"
    step: int = 0
    """Optimizer steps that were done, as everywhere in these records."""
    ago: float = 0.0
    """Seconds from the call to the record that this stands in."""
    returned: bool = False
    """Whether the call came back. On NCCL that means queued; see :class:`Queue`."""


class Queue(msgspec.Struct, frozen=True):
    """How far a group's collectives have come, as its process group counts them (those that C++ makes among them)."""

    group: str
    enqueued: int
    """Called so far."""
    started: int | None = None
    """The last one that NCCL started on the GPU, from 1; None where that is not known (gloo)."""
    completed: int | None = None
    """The last one that NCCL completed."""


class Thread(msgspec.Struct, frozen=True):
    """A thread and where it was, outermost call first."""

    name: str
    frames: tuple[Frame, ...]


class StallRecord(_Record, frozen=True, tag="stall", omit_defaults=True):
    """A step (or the start) takes much longer than it should; written again at growing intervals."""

    step: int = 0
    phase: Phase = "load"
    seconds: float = 0.0
    """Since the last sign of progress."""
    median: float = 0.0
    """Of the last steps; 0 before there were any."""
    threads: tuple[Thread, ...] = ()
    """The main thread first."""
    collectives: tuple[CalledCollective, ...] = ()
    """The last ones, the latest last."""
    counts: dict[str, int] = {}
    """How many collectives the rank had called in each group, by the group's name; calls between two ranks under
    ``"<group> between two"``, those that make groups under ``"groups"``."""
    queues: tuple[Queue, ...] = ()
    module: str | None = None
    """Path of the innermost module whose forward was running."""
    again: int = 0
    """How often this stall had been recorded before."""


class StallEndRecord(_Record, frozen=True, tag="resumed", omit_defaults=True):
    """A stall that was recorded has ended by itself."""

    step: int = 0
    seconds: float = 0.0


class NonFinite(_Record, frozen=True, tag="nonfinite", omit_defaults=True):
    """The first value that is not finite."""

    step: int = 0
    what: Literal["loss", "gradient", "activation", "parameter"] = "loss"
    module: str | None = None
    module_class: str | None = None
    parameter: str | None = None
    inputs_finite: bool | None = None
    """Whether what went into the module was finite."""
    nan: int = 0
    infinite: int = 0
    elements: int = 0
    """Of the tensor in all; ``nan`` and ``infinite`` of them are not finite."""
    dtype: str = ""


class ZeroState(msgspec.Struct, frozen=True, omit_defaults=True):
    """A parameter that takes part in a failure, as ZeRO-3 has it."""

    parameter: str
    status: str
    """``AVAILABLE``, ``NOT_AVAILABLE`` or ``INFLIGHT``."""
    shape: tuple[int, ...]
    """Its whole shape."""
    partition_device: str = ""
    partition_elements: int = 0
    """Of the flat partition that this rank holds."""


class ExceptionRecord(_Record, frozen=True, tag="exception", omit_defaults=True):
    """An exception that left a forward, a backward, a step or the program."""

    type: str = ""
    message: str = ""
    frames: tuple[Frame, ...] = ()
    """Outermost call first."""
    traceback: str = ""
    """As Python prints it."""
    fatal: bool = False
    """True once it has left the program; the record of the same exception on its way out has False."""
    thread: str = ""
    """The thread that it ended, where that is not the main one."""
    module: str | None = None
    module_class: str | None = None
    operands: tuple[Operand, ...] = ()
    """Tensors of the innermost frames; ``name`` is the expression or variable."""
    zero: tuple[ZeroState, ...] = ()
    step: int = 0
    phase: Phase = "load"
    collectives: tuple[CalledCollective, ...] = ()
    counts: dict[str, int] = {}


class Fault(_Record, frozen=True, tag="fault", omit_defaults=True):
    """A fault of the guard itself, by which it (or the part that is named) was switched off."""

    part: str = ""
    type: str = ""
    message: str = ""
    traceback: str = ""


class End(_Record, frozen=True, tag="end", omit_defaults=True):
    """The rank ended in a way that Python could see."""

    reason: Literal["exit", "exception", "signal"] = "exit"
    status: int | None = None
    """The exit status, where it is known."""
    signal: int | None = None
    step: int = 0
    collectives: tuple[CalledCollective, ...] = ()
    """The last ones, where a signal ended the rank."""
    frames: tuple[Frame, ...] = ()
    """Where the main thread was, where a signal ended the rank."""
    counts: dict[str, int] = {}


Record = (
    StartRecord
    | JoinRecord
    | PlacementSnapshot
    | Compared
    | Step
    | WarningRecord
    | StallRecord
    | StallEndRecord
    | NonFinite
    | ExceptionRecord
    | Fault
    | End
)
