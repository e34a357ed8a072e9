"""The record of a rehearsal: what each virtual rank did, as facts without judgement.

A worker process (``gonogo.virtual``) writes one :class:`RankRecord` as JSON; the parent combines them into a
:class:`RehearsalRecord`, from which hazards and the report work. Sizes are in bytes.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Literal

import msgspec

from gonogo.evidence.rehearsal.attached_adapter import AttachedAdapter
from gonogo.evidence.rehearsal.lives import JobSignal, LifePart, RankRunState
from gonogo.evidence.rehearsal.loading import LoaderSharedMemory
from gonogo.evidence.rehearsal.work import PhaseWork
from gonogo.finding.as_run import AsRun
from gonogo.finding.divergence import Divergence
from gonogo.finding.frame import Frame as Frame
from gonogo.finding.frame import Owner as Owner
from gonogo.finding.lives.life_report import Interruption
from gonogo.finding.rehearsal import Assumption as Assumption
from gonogo.finding.rehearsal import AssumptionKind as AssumptionKind
from gonogo.finding.rehearsal import CollectiveTotal as CollectiveTotal
from gonogo.finding.rehearsal import MemoryTimeline as MemoryTimeline
from gonogo.finding.rehearsal import ModuleBytes as ModuleBytes
from gonogo.finding.rehearsal import ModuleMemory as ModuleMemory
from gonogo.finding.rehearsal import Obligation as Obligation
from gonogo.finding.rehearsal import Operand as Operand
from gonogo.finding.rehearsal import Phase as Phase
from gonogo.finding.rehearsal import PhaseMemory as PhaseMemory
from gonogo.finding.remedy import GapRemedy, Reason
from gonogo.finding.waits import StuckKind, WaitingSide
from gonogo.finding.words import OPTIONAL_CATEGORIES

Outcome = Literal[
    "completed", "raised", "out-of-memory", "diverged", "stuck", "unsupported", "timed-out", "killed", "interrupted"
]
ConfinementKind = Literal["", "namespaces", "landlock", "none"]
ROLLOUT_PHASES = ("generate", "reward", "score", "sync")
"""Phases that the methods of a trainer enter, whichever model runs in them."""
_MAX_MESSAGE_LENGTH = 300
"""Characters of an exception's first line that are shown as progress."""
CATEGORIES = (
    *("parameters", "gradients", "optimizer", "activations"),
    *("communication", "temporary", "workspace", "rollout"),
)
"""What memory is used for; ``workspace`` is cuBLAS's."""


def bytes_by_category(category_bytes: Sequence[int]) -> dict[str, int]:
    """Bytes by category, from a sequence in the order of :data:`CATEGORIES`."""
    named = zip(CATEGORIES, category_bytes, strict=True)
    return {name: count for name, count in named if count or name not in OPTIONAL_CATEGORIES}


class Failure(msgspec.Struct, frozen=True):
    """An exception that ended the program. ``frames`` go from the outermost call to the innermost."""

    type: str
    message: str
    frames: tuple[Frame, ...]
    phase: Phase
    step: int
    operator: str | None = None
    """The ATen operator being run, e.g. ``aten.mul_.Tensor``."""
    operands: tuple[Operand, ...] = ()
    module: str | None = None
    """Path of the innermost module whose forward (or backward) was running, e.g. ``model.layers.3.self_attn``."""
    module_class: str | None = None
    reading: str | None = None
    """The JSON or YAML file that was being read, if its syntax is the problem."""
    cause: str = ""
    """``TYPE: MESSAGE`` of the root of its ``raise … from`` chain; else empty."""
    traceback: str = ""
    """The traceback as Python prints it, for the reader and for hazards that read logs."""
    origin: tuple[Frame, ...] = ()
    """Where the forward created the autograd node that failed in backward, outermost call first; else empty."""

    def innermost(self, owner: Owner) -> Frame | None:
        """The innermost frame of that owner, or None."""
        return next((frame for frame in reversed(self.frames) if frame.owner == owner), None)

    def one_line_summary(self) -> str:
        """``TYPE: MESSAGE (FILE:LINE)``, for progress output."""
        frame = self.innermost("user") or self.innermost("library")
        place = f" ({frame.path}:{frame.line})" if frame is not None else ""
        return f"{self.type}: {next(iter(self.message.splitlines()), '')[:_MAX_MESSAGE_LENGTH]}{place}"


class MemoryShortage(msgspec.Struct, frozen=True):
    """The first allocation that would not have fit on the device."""

    device: str
    requested_bytes: int
    allocated_bytes: int
    reserved_bytes: int
    capacity_bytes: int
    """What the caching allocator can reserve: the device's memory minus the stated allowance."""
    phase: Phase
    step: int
    operator: str | None = None
    module: str | None = None
    frames: tuple[Frame, ...] = ()
    by_category: dict[str, int] = {}


class DeviceMemory(msgspec.Struct, frozen=True):
    """One device's memory over the whole program."""

    device: str
    peak_allocated_bytes: int
    peak_reserved_bytes: int
    allowance_bytes: int
    """Memory used outside the caching allocator, by the context, libraries and communicators."""
    total_bytes: int
    peak_phase: Phase
    peak_step: int
    by_category: dict[str, int]
    """Bytes by category at the peak; keys are :data:`CATEGORIES`."""
    top_modules: tuple[ModuleBytes, ...] = ()
    """The ten single modules that hold the most."""
    modules: tuple[ModuleMemory, ...] = ()
    """Everything that holds memory at the peak: for each category it adds up to :attr:`by_category`."""
    shortage: MemoryShortage | None = None
    phases: tuple[PhaseMemory, ...] = ()
    """For training with rollouts: each phase's peak, in order of first entry."""


class HostMemory(msgspec.Struct, frozen=True):
    """Host memory of one rank: what its CPU tensors would have taken."""

    peak_bytes: int
    peak_pinned_bytes: int
    peak_phase: Phase
    peak_step: int
    by_category: dict[str, int]
    modules: tuple[ModuleMemory, ...] = ()
    """As in :class:`DeviceMemory`."""
    steady_peak_bytes: int = 0
    """The peak outside loading and saving, during which a node's first rank may do more than the others."""
    load_peak_bytes: int = 0
    """The peak up to the end of the first loading."""


FIRST_RANK_READS_ASSUMPTION = "from_pretrained: a node's first rank alone reads the weights"
"""Event of a loading in which the other ranks receive the weights from the first one, as with ZeRO-3 and FSDP."""
FIRST_RANK_HOLDS_ASSUMPTION = "FSDP: a node's first rank alone holds the weights until they are sharded"
"""Event of a loading after which the weights stay whole on the first rank, with ``cpu_ram_efficient_loading``."""
ALL_RANKS_READ_EVENT = "FSDP: transformers 5 reads the weights on every rank, whatever cpu_ram_efficient_loading says"
"""Event of such a loading."""
GUESSED_BATCH_ASSUMPTION = "the batch is made from the signature of forward and the configuration"
"""Assumption about images, audio and the like if neither a processor nor the user's program makes them."""
SYNTHETIC_COMPLETIONS_ASSUMPTION = (
    "the completions: of each batch the first has max_tokens tokens, the second ends at once, the others lie between; "
    "their words are arbitrary"
)
"""Assumption about what a model or an engine generates."""
UNCOMPILED_ASSUMPTION = (
    "torch.compile compiles the code, which then takes no more memory than the uncompiled code that was rehearsed"
)
"""Assumption about what ``torch.compile`` compiles."""
UNKNOWN_MASK_ASSUMPTION = "an unknown mask selects every element"
"""Assumption about a selection by values that aren't known."""


class TensorPlacement(msgspec.Struct, frozen=True):
    """Where a parameter or buffer was when training began; ``shape`` is (0,) if ZeRO-3 has partitioned it."""

    name: str
    device: str
    dtype: str
    shape: tuple[int, ...]
    is_buffer: bool = False


class LoadedWeights(msgspec.Struct, frozen=True):
    """A model that ``from_pretrained`` built with weights missing from its checkpoint: initialized at random."""

    model: str
    """Its class."""
    source: str
    """The name or folder that was loaded."""
    parameters: int
    missing_parameters: int
    """How many of :attr:`parameters` belong to the weights initialized at random."""
    missing: tuple[str, ...]
    """The names of these weights, as transformers reports them."""
    held: tuple[str, ...] = ()
    """Those of :attr:`missing` that do exist in the files under exactly that name."""
    named_instead: str | None = None
    """A longer key in the files that ends in the name of a missing weight: a wrapper's prefix was not removed."""
    under_zero3: bool = False
    """Whether its parameters were partitioned over the ranks at construction."""
    frames: tuple[Frame, ...] = ()
    """The stack of the call, outermost call first."""

    @property
    def share(self) -> float:
        """The share of the model's parameters that were initialized at random, 0 to 1."""
        return self.missing_parameters / max(self.parameters, 1)


class UnsupportedPart(msgspec.Struct, frozen=True):
    """Something that can't be rehearsed (a compiled extension, a Triton kernel): its name and place."""

    what: str
    where: str
    why: str
    why_zh: str = ""
    """:attr:`why` in Chinese; empty if the reason comes from an operator and only exists in English."""
    remedy: GapRemedy | None = None
    """What would let it be rehearsed; None if nothing is known, and in a record of an older gonogo."""

    @classmethod
    def of(cls, what: str, where: str, reason: Reason) -> UnsupportedPart:
        """The gap with its reason in both languages."""
        return cls(what, where, reason.why.en, reason.why.zh, reason.remedy)


class MissingInput(msgspec.Struct, frozen=True):
    """A model or data set of the Hub, or a data folder, that the program requested and that isn't on this machine."""

    kind: Literal["model", "data"]
    name: str
    subset: str | None = None
    """For a data set: the requested configuration."""
    split: str | None = None
    files: tuple[str, ...] = ()
    """For a data folder: the requested files in it."""


class FailedLookup(msgspec.Struct, frozen=True):
    """Something that the program, or a library for it, looked up without success before a failure.

    Recorded where the lookup happens (the importer, functions that open or stat files, the loader of shared
    libraries), whatever the exception says afterwards.
    """

    kind: Literal["file", "folder", "module", "library", "program", "address", "made"]
    """``folder``: one that was listed, and may lack what other ranks would have written to it. ``made``: a file or
    folder that gonogo made in place of one that is not here, and that was read."""
    name: str
    asked: Frame
    """The innermost frame that looked it up, excluding Python's own."""
    shared: Frame | None = None
    """The innermost function that was active both at the lookup and at the failure; its line at the lookup."""
    failed_at: int = 0
    """That function's line at the failure."""
    raised_below: bool = False
    """Whether that function is the one that raised; for a ``folder``, whether it is in the same package."""
    phase: Phase = "load"
    step: int = 0
    written: bool = False
    """Whether it is in a folder to which the program itself has written."""
    handed: bool = False
    """Whether the path was passed to the call that failed, rather than looked up by a function that reports it."""
    into: str = ""
    """For an address: the file into which the program would have written what it fetches."""


class AdvancedLoop(msgspec.Struct, frozen=True):
    """A test of a loop's counter, and the value set so that it holds; ``counter`` is empty if that isn't possible."""

    place: str
    """``file:line``."""
    text: str
    counter: str = ""
    before: int = 0
    value: int = 0
    sure: bool = True
    """Whether the loop certainly reaches that value."""


class OmittedPart(msgspec.Struct, frozen=True):
    """A part of the run that the rehearsal left out, and why, in English and Chinese."""

    what: str
    what_zh: str
    why: str
    why_zh: str


class StartedCommand(msgspec.Struct, frozen=True):
    """A command that the program starts, and that may be its training."""

    words: list[str]
    cwd: str
    program: str
    """The Python program that it runs, or the launcher."""
    environment: dict[str, str] = {}
    """The variables that the program set or changed for it."""


class RankRecord(msgspec.Struct):
    """Everything that one rank's worker observed in a rehearsal."""

    rank: int
    local_rank: int
    device: str
    outcome: Outcome
    seconds: float = 0.0
    steps: int = 0
    """Optimizer steps completed."""
    operators: int = 0
    phases: list[Phase] = []
    """Phases reached, in order of first entry."""
    expected_phases: list[Phase] = []
    """Phases that a real run would reach according to its settings (``evaluate`` if one is configured ...)."""
    last_activity: str = ""
    """What the rank did last (phase, step, module), for a worker that timed out or was killed."""
    failure: Failure | None = None
    devices: list[DeviceMemory] = []
    host: HostMemory | None = None
    timelines: list[MemoryTimeline] = []
    """Memory over time for each device, including the host."""
    collectives: list[CollectiveTotal] = []
    assumptions: list[Assumption] = []
    unsupported: list[UnsupportedPart] = []
    unused_parameters: list[str] = []
    """Trainable parameters that took part in no forward."""
    parameters_without_gradient: list[str] = []
    """Trainable parameters that took part in a forward, and got no gradient in any step."""
    left_on_cpu: list[TensorPlacement] = []
    """Parameters and buffers of the trained model that were on the CPU though the others were on the device."""
    parameter_count: int = 0
    as_run: AsRun | None = None
    """What was run, as observed; None if nothing was trained."""
    deepspeed_config: dict[str, object] | None = None
    """The config as the engine resolved it, or None if no engine was created."""
    device_map: dict[str, object] | None = None
    """The ``device_map`` by which ``from_pretrained`` distributed the model, or None."""
    device_map_frames: list[Frame] = []
    """The stack of the call that set :attr:`device_map`, outermost call first."""
    drawn_weights: list[LoadedWeights] = []
    """The models that were loaded with some weights missing."""
    versions: dict[str, str] = {}
    """Versions of the stack as imported in the worker."""
    saved_bytes: int = 0
    """Bytes of checkpoints and saved models that a real run would have written."""
    events: list[str] = []
    """Notable facts that fit nowhere else, in order ("from_pretrained: read 3 safetensors headers")."""
    starts_processes: int | None = None
    """How many training processes the program was about to start itself."""
    starts_by: str = ""
    """With what; empty if it was not about to."""
    starts_training: StartedCommand | None = None
    """The command by which the program starts the training, if it trains nothing itself."""
    user_error: tuple[str, str] | None = None
    """A message, in English and Chinese, about something that the user must provide (such as a model's config)."""
    stack: list[Frame] = []
    """Where the program was, if it was terminated from outside."""
    stuck: StuckKind = ""
    """How its process stood still, if the outcome is ``stuck``."""
    waits: list[WaitingSide] = []
    """Who waited for whom then: its threads, Ray's actors, or the rank in a collective with one that was stuck."""
    rss_bytes: int = 0
    """Peak resident memory of the worker itself: the cost of the rehearsal."""
    batch: list[tuple[str, str]] = []
    """The last batch that was read: (name, type and shape)."""
    batches: int = 0
    """How many batches were read."""
    empty_pass: bool = False
    """Whether, before any step, a pass over the training data had no batch, or the loader said so."""
    loading: LoaderSharedMemory | None = None
    """What the data loader's worker processes would pass through /dev/shm; None if it has none."""
    batches_left: int | None = None
    """Batches left when the rehearsal ended the data, if that differs between ranks."""
    formed_world: int = 1
    """Size of the program's process group when it stepped."""
    workers: list[str] = []
    """Ray actors that were rehearsed with the program, each name with their number: ``WorkerDict x 8``."""
    data_ended: Assumption | None = None
    read_beyond: Assumption | None = None
    """Assumption that training reaches the unlike batches further on in its data, which were rehearsed early."""
    """Where the rehearsal first ended data before its end, so that what comes after sees less of it."""
    data_shapes: list[str] = []
    """For each rank, the kinds of batches that it reads first; only if the worker was started to probe for this."""
    parameter_names: dict[int, str] = {}
    """Parameter names by DeepSpeed's ids, if several ranks are rehearsed together."""
    pipeline: tuple[int, int, int] = (1, 1, 1)
    """Stages, micro-batches per step, and model chunks per rank: they determine the pipeline bubble."""
    work: list[PhaseWork] = []
    """What the rank computed and transferred, if requested."""
    stopped_by: tuple[int, str] | None = None
    """(rank, its outcome) of a rank that ended while this one waited for it, if that caused the failure."""
    missed: list[MissingInput] = []
    """What it requested from the Hub without success."""
    advanced_loops: list[AdvancedLoop] = []
    """Loops whose counter was advanced, in order to rehearse what they only do later."""
    left_out: list[OmittedPart] = []
    """Parts of the run that were left out."""
    confinement: ConfinementKind = ""
    """How the kernel sandboxed the program; empty in a record of an older gonogo, or if it never ran."""
    absent: list[FailedLookup] = []
    """Lookups that failed before a failure, and may be related to it."""
    imported: dict[str, str] = {}
    """For a failed rank: the distributions (canonical names) that it had imported, with their versions."""
    made_operands: list[str] = []
    """Objects made by gonogo (a tokenizer, a stand-in's object) that were operands of the failing statement."""
    certificate: list[Obligation] = []
    """For a failed rank: the conditions under which the real run fails in the same way."""
    attached_adapters: list[AttachedAdapter] = []
    """Adapters that it put on a base of another name than theirs."""
    life: RankRunState | None = None
    """What the rank observed of the run's life, if that is rehearsed."""


class AcceleratorFacts(msgspec.Struct, frozen=True):
    """The accelerator that was simulated."""

    name: str
    device_type: str
    total_bytes: int
    allowance_bytes: int


class RehearsalRecord(msgspec.Struct):
    """A rehearsal's result: the world, and the records of the ranks that were run in it."""

    command: list[str]
    cwd: str
    world_size: int
    """Size of the process group that the program formed, or the number of launched ranks if that is larger."""
    nodes: int
    ranks_per_node: int
    accelerator: AcceleratorFacts
    steps: int
    host_memory_bytes: int | None
    """A node's host memory, or None if not stated."""
    seconds: float = 0.0
    ranks: list[RankRecord] = []
    launcher: str = "python"
    launched: int | None = None
    """Ranks that the launch itself starts, if the program starts others."""
    skipped: list[tuple[str, str]] = []
    """(what, why) of what the parent left out, e.g. a package version that could not be overlaid."""
    skipped_zh: list[tuple[str, str]] = []
    """:attr:`skipped` in Chinese, entry by entry; empty in a record of an older gonogo."""
    notes: list[tuple[str, str]] = []
    """Notes on how the command was interpreted, in English and Chinese."""
    divergence: Divergence | None = None
    """Where the rehearsed ranks diverged; None if they didn't, or if only one rank was rehearsed."""
    inferred: dict[str, str] = {}
    """Generated files whose shape or columns were inferred from the code that reads them, as in ``Prepared.shapes``."""
    laid_over: dict[str, str] = {}
    """Packages (canonical name) that were rehearsed in a version other than the installed one."""
    shm_bytes: int | None = None
    """Size of a node's /dev/shm, if the source of the command states it."""
    differing: list[str] = []
    """Packages (canonical name) in the environment file that were replaced or left out."""
    torch_requested: str = ""
    """The version of torch that the environment file requires (``==2.4.1``), if another one was rehearsed."""
    differing_by_date: list[str] = []
    """Those of :attr:`differing` whose version the file allows: only the releases of its repository's day differ."""
    without_operators: list[str] = []
    """Those of :attr:`differing` that are of the requested release, but have no compiled operators (torchvision)."""
    undeclared: list[str] = []
    """Packages (canonical names) that were installed although no file says which release the run has."""
    whole_environment: bool = False
    """Whether only the packages in :attr:`laid_over` were visible, and none of the installed ones."""
    life_part: LifePart = ""
    """Which life this is, if the whole life was requested; ``first`` if there was no second one."""
    first_life: RehearsalRecord | None = None
    """For a second life: the record of the first."""
    disk_bytes: int | None = None
    """The free disk space for checkpoints, if it is stated."""
    write_bytes_per_second: float | None = None
    """How fast checkpoints are written, if it is stated."""
    signal: JobSignal | None = None
    """For a first life: the signal that it got after the rehearsed steps."""
    saves_wanted: int = 1
    """How many saves the first life was asked to make."""
    checkpoint_bytes: dict[str, int] = {}
    """For a first life: the size of each file that its ranks wrote from their first step on."""
    life_stages: tuple[str, ...] = ()
    """The stages of a run's life that were requested."""
    second_life: RehearsalRecord | None = None
    """For a stage that failed after the run was resumed: the record of the resumed run."""
    afterwards: list[RehearsalRecord] = []
    """The stages after the lives that succeeded (convert, merge, serve): a record of each."""
    interruptions: list[Interruption] = []
    """For a second life: how the resume ends if the first life is killed in the middle of its save."""
    moments_not_tried: int = 0
    later_interruptions: list[Interruption] = []
    """The same for the save that the resumed run would make next."""
    resumes_as_given: bool = True
    """Whether the second life's command was identical to the first's."""

    def was_written_before(self, path: str) -> bool:
        """Whether the first life, all of whose ranks are known, wrote into this folder, or into this path's folder.

        If so, a path that doesn't exist there is missing in a real run too: the run itself doesn't write it.
        """
        first = self.first_life
        if first is None or (first.world_size > 1 and not {0, 1} <= {rank.rank for rank in first.ranks}):
            return False
        whole = os.path.normpath(os.path.join(first.cwd, path))
        folders = {os.path.dirname(file) for file in first.checkpoint_bytes}
        return whole in folders or (os.path.dirname(whole) in folders and os.path.dirname(whole) != first.cwd)
