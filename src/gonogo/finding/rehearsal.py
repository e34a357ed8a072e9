"""A rehearsal in a report, as its JSON shows it: the world, and each rank that was run. Sizes are in bytes.

Also the comparison of two rehearsals.

Fields of type ``object`` are facts recorded by the rank that only the JSON shows.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from gonogo.finding.as_run import AsRun
from gonogo.finding.divergence import Divergence
from gonogo.finding.frame import Frame
from gonogo.finding.lives.life_report import LifeReport
from gonogo.finding.lives.result_report import ResultReport
from gonogo.finding.text import Text

Phase = Literal[
    "load", "init", "generate", "reward", "score", "sync", "forward", "backward", "step", "evaluate", "save", "exit"
]
_MAX_POINTS = 256
"""Maximum number of points of a curve in JSON: the width of a page in half pixels."""
_MIB = 1 << 20


class Operand(msgspec.Struct, frozen=True):
    """A tensor argument of an operator, with its ``name`` in the operator's schema and its ``shape`` at the call."""

    name: str
    device: str
    dtype: str
    shape: tuple[int, ...]
    parameter: str | None = None
    """Full name of the parameter or buffer it is (or is a view, gathered copy or gradient of)."""
    kind: Literal["parameter", "buffer", "gradient", "optimizer", "input", "activation", "unknown"] = "unknown"
    chosen: bool = False
    """Whether its values derive from choices among unknown scores: a token, an expert, a beam."""


class FailureSummary(msgspec.Struct, frozen=True):
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
    """The innermost frame of the user's own code, its path relative to the command's folder."""
    library_frame: Frame | None = None


class ModuleBytes(msgspec.Struct, frozen=True):
    """Bytes live at the peak that were allocated while this module ran (or that are its parameters)."""

    module: str
    bytes: int


class ModuleMemory(msgspec.Struct, frozen=True):
    """Memory held at the peak by the modules at one place in a model, by category.

    ``module`` is their path, with ``*`` for the indices of a list, whose modules are merged: ``count`` of them.
    Empty: outside any module.
    """

    module: str
    by_category: dict[str, int]
    count: int = 1

    @property
    def bytes(self) -> int:
        """Total bytes over all categories."""
        return sum(self.by_category.values())


class PhaseMemory(msgspec.Struct, frozen=True):
    """The peak of a phase over all times it was entered, and its composition."""

    phase: Phase
    bytes: int
    by_category: dict[str, int]


class Device(msgspec.Struct, frozen=True):
    """One device's memory over the whole program; ``by_category`` is its composition at the peak."""

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
    """Everything that holds memory at the peak: for each category it adds up to ``by_category``."""
    percent: float = 0.0
    """Share of the device's memory: what is reserved, and what is used outside the caching allocator."""
    free_bytes: int = 0
    """What is left; negative if it doesn't fit."""
    phases: tuple[PhaseMemory, ...] | msgspec.UnsetType = msgspec.UNSET
    """The peak of each phase of a training with rollouts; unset for others."""


class MemoryTimeline(msgspec.Struct, frozen=True):
    """Memory of one device over a program's life, in points: each is the peak of an interval.

    An interval is :attr:`allocations` allocations long. All columns have one entry per point, in chronological order.
    """

    device: str
    allocations: int
    by_category: dict[str, tuple[int, ...]]
    """Bytes at the interval's peak, which they add up to. Categories that never held anything are omitted."""
    reserved: tuple[int, ...]
    """Bytes that the caching allocator had reserved by then; zeros for the host."""
    phases: tuple[Phase, ...]
    steps: tuple[int, ...]
    reached_by: tuple[str, ...]
    """The category of the allocation that reached it."""
    modules: tuple[str, ...]
    """The module of that allocation; empty: outside any."""
    operators: tuple[str, ...] = ()
    """The operator of that allocation, such as ``aten.mm.default``."""
    places: tuple[str, ...] = ()
    """``FILE:LINE FUNCTION`` of that allocation: the innermost frame outside torch; empty if there is none."""


class CollectiveTotal(msgspec.Struct, frozen=True):
    """How often a collective ran, and how many bytes this rank contributed."""

    operator: str
    count: int
    bytes: int


class Collectives(msgspec.Struct, frozen=True):
    """The collectives of a rank."""

    count: int
    bytes: int
    by_operator: tuple[CollectiveTotal, ...]


AssumptionKind = Literal[
    "", "number", "chosen_number", "zeros", "finite", "scores", "peer_tensors", "peer_objects", "peer_parameters",
    "generated", "guessed", "flash_attention", "cudnn_attention", "cluster",
]  # fmt: skip
"""What an assumption is about, where findings depend on it; empty for all others.

``number``: a Python number or truth value that the program got for an unknown one. ``chosen_number``: one that was
computed from a choice among unknown scores; ``scores``: the choice itself. ``zeros``: the contents of a tensor that
the program reads. ``finite``: no NaN, no infinity. ``peer_tensors``, ``peer_objects``, ``peer_parameters``: what other
ranks send, which is known if they are rehearsed as well. ``generated``: the content of data in place of the real
ones, with the published columns; ``guessed``: with columns inferred from the program. ``flash_attention``,
``cudnn_attention``: kernels that are taken to be installed. ``cluster``: what a cluster has to give.
"""


class Assumption(msgspec.Struct, frozen=True):
    """Something that can't be known without real values, and what was assumed instead."""

    what: str
    where: str
    """``file:line`` of the innermost frame of the program."""
    count: int = 1
    what_zh: str = ""
    """:attr:`what` in Chinese; empty in a record of an older gonogo."""
    kind: AssumptionKind = ""
    """What decides findings, whose readers get the words of :attr:`what`."""


class NotRehearsed(msgspec.Struct, frozen=True):
    """A part of the run that could not be rehearsed, and why."""

    what: str
    where: str
    why: str
    why_zh: str = ""


class Obligation(msgspec.Struct, frozen=True):
    """A condition for a rehearsed failure to occur in the real run as well, and whether it is met."""

    name: str
    """``packages``, ``python``, ``missing`` ...: :data:`gonogo.rehearse.limits.certificate.NAMES`."""
    met: bool
    needed: bool
    """Whether the explanation of the failure depends on it."""
    shown: str
    """The evidence that it is met; or what is missing, and what to do."""
    shown_zh: str


class RoutingBand(msgspec.Struct, frozen=True):
    """How a rank's peak depends on the router: it is rehearsed with an even share of the tokens."""

    experts: int
    chosen: int
    """Experts chosen per token."""
    expert_parallel: int
    least_bytes: int
    """Peak allocation if no token is routed to this rank's experts."""
    even_bytes: int
    most_bytes: int
    """Peak allocation with the maximum number of tokens: ``most_share`` times the even share."""
    most_share: float
    fits_share: float
    """The largest multiple of the even share that fits on the device."""


class RehearsedRank(msgspec.Struct, frozen=True):
    """One rank that was run. ``peak_…`` without a device refer to its own device."""

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
    unsupported: tuple[NotRehearsed, ...]
    unused_parameters: tuple[str, ...]
    parameters_without_gradient: tuple[str, ...]
    left_on_cpu: object
    failure: FailureSummary | None
    events: tuple[str, ...]
    as_run: AsRun | None = None
    certificate: tuple[Obligation, ...] | msgspec.UnsetType = msgspec.UNSET
    """For a failed rank; unset for others."""
    routing: RoutingBand | msgspec.UnsetType = msgspec.UNSET
    """For a model with experts sharded over ranks."""
    host_modules: tuple[ModuleMemory, ...] = ()
    """For the peak of host memory; see :attr:`Device.modules`."""
    timelines: tuple[MemoryTimeline, ...] = ()
    """For charts; the JSON doesn't contain them."""


class NodeMemory(msgspec.Struct, frozen=True):
    """Host memory of the fullest node; ``estimated`` if not all of its ranks were run."""

    peak_bytes: int
    pinned_bytes: int
    capacity_bytes: int | None
    ranks: int
    estimated: bool
    percent: float | None = None
    """The peak as a percentage of the capacity."""


class MemoryCurve(msgspec.Struct, frozen=True):
    """A :class:`MemoryTimeline` in the JSON: fewer points, in MiB, without the origin of allocations."""

    device: str
    allocations: int
    """Number of allocations per point, which shows the moment with the most memory among them."""
    held_mib: dict[str, list[int]]
    """By category; categories that never held anything are omitted."""
    reserved_mib: list[int]
    """Memory reserved by the caching allocator; empty for the host."""
    phases: list[tuple[str, int, int, int]]
    """(phase, step, first point, last point), in chronological order."""


class ChangedSetting(msgspec.Struct, frozen=True):
    """A setting that was rehearsed with another value than in the run's files."""

    name: str
    value: str
    files: tuple[str, ...]
    """The files with this setting, which have to be changed for the real run."""


class AlsoRehearsed(msgspec.Struct, frozen=True):
    """The result of the same run with other settings: the first rank's memory on its own device."""

    settings: dict[str, str]
    """By the names that ``--set`` accepts."""
    verdict: str
    reason: Text | None
    """For a verdict other than GO: the finding that causes it."""
    peak_allocated_bytes: int
    peak_reserved_bytes: int
    host_bytes_of_node: int
    seconds_of_step: float | None
    tokens_per_second_per_gpu: float | None
    samples: int | None
    """Samples per micro-batch, as observed."""
    tokens: int | None
    """Tokens in the longest sample that was observed."""
    accumulation: int | None
    curve: MemoryCurve | None
    min_tokens: int | None = None
    """Tokens in the shortest sample that was observed."""


class GpuModel(msgspec.Struct, frozen=True):
    """A type of GPU on which the same program could run."""

    name: str
    total_bytes: int
    allowance_bytes: int
    has_bfloat16: bool


class StepScaling(msgspec.Struct, frozen=True):
    """What the estimated time of a step would be with other micro-batches and accumulation, between what bounds."""

    seconds: float
    """As it was rehearsed."""
    fixed: float
    """Of them, what a step takes once, however many micro-batches it has: the optimizer."""
    waits: float
    """Of the others, what collectives take: once in a step, or once for each micro-batch."""
    by_samples: tuple[tuple[float, float, float], ...]
    """(times as many samples in a micro-batch, at least, at most), ascending."""


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
    ranks: tuple[RehearsedRank, ...]
    life: LifeReport | msgspec.UnsetType = msgspec.UNSET
    """For ``--life``: which state was saved, and which of it the resumed run has."""
    result: ResultReport | msgspec.UnsetType = msgspec.UNSET
    """For ``--life`` with convert, merge or serve: which trained weights the result contains."""
    seconds_of_step: float | None = None
    """According to plan's roofline model: for comparison only. None if no work was counted."""
    tokens_per_second_per_gpu: float | None = None
    """Throughput at that speed, with the longest samples that were observed."""
    changed: tuple[ChangedSetting, ...] | msgspec.UnsetType = msgspec.UNSET
    """For ``--set``: the settings that differ from the files."""
    also: tuple[AlsoRehearsed, ...] | msgspec.UnsetType = msgspec.UNSET
    """For ``--also``: the same run with other settings."""
    gpus: tuple[GpuModel, ...] = ()
    """Types of GPU offered by the page's what-if; the JSON doesn't contain them."""
    step_scaling: StepScaling | None = None
    """For the page's what-if; the JSON is without."""


def downsample_timeline(timeline: MemoryTimeline) -> MemoryCurve:
    """The curve: of the points that are merged, the one with the most memory is kept."""
    totals = [sum(held) for held in zip(*timeline.by_category.values(), strict=True)]
    width = max(-(-len(totals) // _MAX_POINTS), 1)
    starts = range(0, len(totals), width)
    kept = [max(range(start, min(start + width, len(totals))), key=totals.__getitem__) for start in starts]
    return MemoryCurve(
        timeline.device,
        timeline.allocations * width,
        {name: [round(held[at] / _MIB) for at in kept] for name, held in timeline.by_category.items()},
        [round(timeline.reserved[at] / _MIB) for at in kept] if any(timeline.reserved) else [],
        group_by_phase([(timeline.phases[at], timeline.steps[at]) for at in kept]),
    )


def group_by_phase(points: list[tuple[str, int]]) -> list[tuple[str, int, int, int]]:
    """Merge consecutive points of one phase and step: (phase, step, first point, last point)."""
    runs: list[tuple[str, int, int, int]] = []
    for number, (phase, step) in enumerate(points):
        if runs and runs[-1][:2] == (phase, step):
            runs[-1] = (phase, step, runs[-1][2], number)
        else:
            runs.append((phase, step, number, number))
    return runs


class ComparedValue(msgspec.Struct, frozen=True):
    """One row of a before/after comparison; ``judged`` if the comparison's verdict is based on it."""

    what: Text
    before: Text
    after: Text
    change: Text = Text("", "")
    judged: Literal["", "better", "worse"] = ""
    is_headline: bool = False
    """Whether it is one of the few figures shown at the top."""


class ReportDifference(msgspec.Struct, frozen=True):
    """Something that only one of the two reports contains."""

    kind: Literal["finding", "assumption", "covered", "skipped"]
    is_new: bool
    """True if only the later report contains it; else only the earlier one does."""
    what: Text


class CurvePair(msgspec.Struct, frozen=True):
    """Memory of one device in both rehearsals."""

    rank: int
    before: MemoryCurve
    after: MemoryCurve
    capacity_bytes: int = 0
    """What the caching allocator may reserve on the device in the later rehearsal; 0 for the host."""


class RehearsalComparison(msgspec.Struct, frozen=True):
    """The comparison of two rehearsals; its reasons are sentences about what is worse or better."""

    judged: Literal["same", "better", "regressed"]
    before: str
    """The file of the earlier report."""
    after: str
    """The file of the later report; empty for a rehearsal that has just been made."""
    before_verdict: str
    after_verdict: str
    growth: float
    """Tolerated growth of a memory peak, in percent."""
    reasons: tuple[Text, ...]
    changes: tuple[ComparedValue, ...]
    differences: tuple[ReportDifference, ...]
    peaks_judged: bool = True
    """Whether a rank completed in both, so that its peaks are those of the whole run."""
    curves: tuple[CurvePair, ...] = ()
    next_command: str = ""
    """The next command that the later report suggests."""
    next_does: str = ""
    next_purpose: str = ""
    """What :attr:`next_does` says, as one of ``Purpose``; empty if the report is of an older gonogo."""
    next_details: dict[str, str] = {}
