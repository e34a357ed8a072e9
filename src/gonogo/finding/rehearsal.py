"""What a report says of a rehearsal, as its JSON has it: the world, and each rank that was run. Sizes are bytes.

And of two: what became of the first.

Fields that are ``object`` are facts that only the JSON shows, as the rank recorded them.
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
"""Of a curve in JSON: as many as a page is wide in half pixels."""
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
    """Whether its values come of choices among unknown scores: a token, an expert, a beam."""


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
    """The innermost frame of the user's own code, its path as seen from the folder of the command."""
    library_frame: Frame | None = None


class ModuleBytes(msgspec.Struct, frozen=True):
    """Bytes live at the peak that were allocated while this module ran (or that are its parameters)."""

    module: str
    bytes: int


class ModuleMemory(msgspec.Struct, frozen=True):
    """What the modules of one place in a model hold at the peak, and which categories it is.

    ``module`` is their path, with ``*`` for the numbers of a list, whose modules stand together: ``count`` of them.
    Empty: outside any module.
    """

    module: str
    by_category: dict[str, int]
    count: int = 1

    @property
    def bytes(self) -> int:
        """All that they hold."""
        return sum(self.by_category.values())


class PhaseMemory(msgspec.Struct, frozen=True):
    """The most that was live in a phase, whenever it was entered, and how that was divided."""

    phase: Phase
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
    """Memory of one device over a program's life, in points: each is the highest moment of a stretch.

    A stretch is :attr:`allocations` allocations long. All columns have one entry a point, in the order of time.
    """

    device: str
    allocations: int
    by_category: dict[str, tuple[int, ...]]
    """Bytes; together the most that was held in the stretch. What never held anything is left out."""
    reserved: tuple[int, ...]
    """Bytes that the caching allocator had taken by then; zeros for the host."""
    phases: tuple[Phase, ...]
    steps: tuple[int, ...]
    reached_by: tuple[str, ...]
    """The category of the allocation that reached it."""
    modules: tuple[str, ...]
    """Its module; empty: outside any."""
    operators: tuple[str, ...] = ()
    """Its operator, as ``aten.mm.default``."""
    places: tuple[str, ...] = ()
    """``FILE:LINE FUNCTION`` that asked for it: the innermost frame that is not torch's; empty where there is none."""


class CollectiveTotal(msgspec.Struct, frozen=True):
    """How often a collective ran, and how many bytes this rank put in."""

    operator: str
    count: int
    bytes: int


class Collectives(msgspec.Struct, frozen=True):
    """The collectives of a rank."""

    count: int
    bytes: int
    by_operator: tuple[CollectiveTotal, ...]


class Assumption(msgspec.Struct, frozen=True):
    """Something that could not be known without real values, and what was taken instead."""

    what: str
    where: str
    """``file:line`` of the innermost frame of the program."""
    count: int = 1
    what_zh: str = ""
    """:attr:`what` in Chinese; empty where it was written by an older gonogo."""


class NotRehearsed(msgspec.Struct, frozen=True):
    """What could not be rehearsed."""

    what: str
    where: str
    why: str
    why_zh: str = ""


class Obligation(msgspec.Struct, frozen=True):
    """One thing that has to be so for a failure in the rehearsal to be the real run's, and whether it is."""

    name: str
    """``packages``, ``python``, ``missing`` ...: :data:`gonogo.rehearse.limits.certificate.NAMES`."""
    met: bool
    needed: bool
    """Whether what explains the failure hangs on it."""
    shown: str
    """What shows that it is met; or what it lacks, and what to do."""
    shown_zh: str


class RoutingBand(msgspec.Struct, frozen=True):
    """A rank's peak over what the router may do: it is rehearsed with its even share of the tokens."""

    experts: int
    chosen: int
    """For each token."""
    expert_parallel: int
    least_bytes: int
    """Allocated at the peak where no token comes to this rank's experts."""
    even_bytes: int
    most_bytes: int
    """Where as many come as can: ``most_share`` times the even share."""
    most_share: float
    fits_share: float
    """Up to how many times the even share fits into what the device has."""


class RehearsedRank(msgspec.Struct, frozen=True):
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
    unsupported: tuple[NotRehearsed, ...]
    unused_parameters: tuple[str, ...]
    parameters_without_gradient: tuple[str, ...]
    left_on_cpu: object
    failure: FailureSummary | None
    events: tuple[str, ...]
    as_run: AsRun | None = None
    certificate: tuple[Obligation, ...] | msgspec.UnsetType = msgspec.UNSET
    """Of a rank that failed; not set for others."""
    routing: RoutingBand | msgspec.UnsetType = msgspec.UNSET
    """Of a model with experts that ranks share."""
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


class MemoryCurve(msgspec.Struct, frozen=True):
    """A :class:`MemoryTimeline` as the JSON keeps it: fewer points, in MiB, without who allocated."""

    device: str
    allocations: int
    """Allocations that a point stands for; of these it is the moment with the most memory."""
    held_mib: dict[str, list[int]]
    """By category; what never held anything is left out."""
    reserved_mib: list[int]
    """What the caching allocator had taken; empty for the host."""
    phases: list[tuple[str, int, int, int]]
    """(phase, step, first point, last point), in the order of time."""


class ChangedSetting(msgspec.Struct, frozen=True):
    """A setting that was rehearsed otherwise than the run's files say it."""

    name: str
    value: str
    files: tuple[str, ...]
    """Where the run says it: what has to be changed for the real run."""


class AlsoRehearsed(msgspec.Struct, frozen=True):
    """What the same run came to with other settings: the first rank's memory on its own device."""

    settings: dict[str, str]
    """By the names that ``--set`` takes."""
    verdict: str
    reason: Text | None
    """Of a verdict other than GO: the finding that it rests on."""
    peak_allocated_bytes: int
    peak_reserved_bytes: int
    host_bytes_of_node: int
    seconds_of_step: float | None
    tokens_per_second_per_gpu: float | None
    samples: int | None
    """Of a micro-batch, as it was seen."""
    tokens: int | None
    """Of the longest sample that was seen."""
    accumulation: int | None
    curve: MemoryCurve | None
    min_tokens: int | None = None
    """Of the shortest sample that was seen."""


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
    """Of ``--life``: what of the state was saved, and what the resumed run has of it."""
    result: ResultReport | msgspec.UnsetType = msgspec.UNSET
    """Of ``--life`` with convert, merge or serve: what of the training is in what was made of the checkpoint."""
    seconds_of_step: float | None = None
    """By plan's roofline: it compares, and is no promise. None where no work was counted."""
    tokens_per_second_per_gpu: float | None = None
    """At that speed, with the longest samples that were seen."""
    changed: tuple[ChangedSetting, ...] | msgspec.UnsetType = msgspec.UNSET
    """Of ``--set``: what was rehearsed otherwise than the files say."""
    also: tuple[AlsoRehearsed, ...] | msgspec.UnsetType = msgspec.UNSET
    """Of ``--also``: the same run with other settings."""
    gpus: tuple[GpuModel, ...] = ()
    """Types of GPU that the page's what-if chooses from; the JSON is without."""
    step_scaling: StepScaling | None = None
    """For the page's what-if; the JSON is without."""


def downsample_timeline(timeline: MemoryTimeline) -> MemoryCurve:
    """The curve: of the points that are put together, that with the most memory is kept whole."""
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
    """Points of one phase and step together: (phase, step, first point, last point)."""
    runs: list[tuple[str, int, int, int]] = []
    for number, (phase, step) in enumerate(points):
        if runs and runs[-1][:2] == (phase, step):
            runs[-1] = (phase, step, runs[-1][2], number)
        else:
            runs.append((phase, step, number, number))
    return runs


class ComparedValue(msgspec.Struct, frozen=True):
    """One row of before and after; ``judged`` where the verdict of the comparison rests on it."""

    what: Text
    before: Text
    after: Text
    change: Text = Text("", "")
    judged: Literal["", "better", "worse"] = ""
    is_headline: bool = False
    """Whether it is one of the few figures that stand at the top."""


class ReportDifference(msgspec.Struct, frozen=True):
    """What only one of the two reports has."""

    kind: Literal["finding", "assumption", "covered", "skipped"]
    is_new: bool
    """Whether the later report has it; else it was in the earlier one, and is gone."""
    what: Text


class CurvePair(msgspec.Struct, frozen=True):
    """Memory of one device in both rehearsals."""

    rank: int
    before: MemoryCurve
    after: MemoryCurve
    capacity_bytes: int = 0
    """What the caching allocator may take of the device in the later rehearsal; 0 for the host."""


class RehearsalComparison(msgspec.Struct, frozen=True):
    """The comparison of two rehearsals; its reasons are sentences of what is worse, or better."""

    judged: Literal["same", "better", "regressed"]
    before: str
    """The file of the earlier report."""
    after: str
    """The file of the later one; empty for the rehearsal that was just made."""
    before_verdict: str
    after_verdict: str
    growth: float
    """Per cent that a memory peak may grow."""
    reasons: tuple[Text, ...]
    changes: tuple[ComparedValue, ...]
    differences: tuple[ReportDifference, ...]
    peaks_judged: bool = True
    """Whether some rank completed in both, so that its peaks are those of the whole run."""
    curves: tuple[CurvePair, ...] = ()
    next_command: str = ""
    """What the later report says to do next."""
    next_does: str = ""
