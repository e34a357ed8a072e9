"""The record of a rehearsal: what each virtual rank did, as facts, with no judgement.

A worker process (``gonogo.virtual``) writes one :class:`RankRecord` as JSON; the parent reads them into a
:class:`RehearsalRecord`, which hazards look at and from which the report is made. Sizes are bytes.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Literal

import msgspec

from gonogo.evidence.rehearsal.lives import LifePart, RankLife
from gonogo.evidence.rehearsal.loading import LoaderSharedMemory
from gonogo.evidence.rehearsal.work import PhaseWork
from gonogo.finding.as_run import AsRun
from gonogo.finding.divergence import Divergence
from gonogo.finding.frame import Frame as Frame
from gonogo.finding.frame import Owner as Owner
from gonogo.finding.lives.life_report import Interruption
from gonogo.finding.rehearsal import Assumption as Assumption
from gonogo.finding.rehearsal import CollectiveTotal as CollectiveTotal
from gonogo.finding.rehearsal import MemoryTimeline as MemoryTimeline
from gonogo.finding.rehearsal import ModuleBytes as ModuleBytes
from gonogo.finding.rehearsal import ModuleMemory as ModuleMemory
from gonogo.finding.rehearsal import Obligation as Obligation
from gonogo.finding.rehearsal import Operand as Operand
from gonogo.finding.rehearsal import Phase as Phase
from gonogo.finding.rehearsal import PhaseMemory as PhaseMemory
from gonogo.finding.words import OPTIONAL_CATEGORIES

Outcome = Literal[
    "completed", "raised", "out-of-memory", "diverged", "unsupported", "timed-out", "killed", "interrupted"
]
ConfinementKind = Literal["", "namespaces", "landlock", "none"]
ROLLOUT_PHASES = ("generate", "reward", "score", "sync")
"""Phases that the methods of a trainer enter, whichever model runs in them."""
_MAX_MESSAGE = 300
"""Characters of an exception's first line that who watches is told."""
CATEGORIES = (
    *("parameters", "gradients", "optimizer", "activations"),
    *("communication", "temporary", "workspace", "rollout"),
)
"""What memory holds; ``workspace``: cuBLAS's."""


def categories_of(category_bytes: Sequence[int]) -> dict[str, int]:
    """Bytes by category, given those of :data:`CATEGORIES` in their order."""
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
    """The JSON or YAML file that was being read, where its syntax is at fault."""
    cause: str = ""
    """``TYPE: MESSAGE`` of the first exception of the chain that it was raised from (``raise … from``); else empty."""
    traceback: str = ""
    """The traceback as Python prints it, for the reader and for hazards that read logs."""
    origin: tuple[Frame, ...] = ()
    """Where the forward made the autograd node that failed in backward, outermost call first; else empty."""

    def innermost(self, owner: Owner) -> Frame | None:
        """The innermost frame of that owner, or None."""
        return next((frame for frame in reversed(self.frames) if frame.owner == owner), None)

    def in_a_line(self) -> str:
        """``TYPE: MESSAGE (FILE:LINE)``, for who watches the rehearsal."""
        frame = self.innermost("user") or self.innermost("library")
        place = f" ({frame.path}:{frame.line})" if frame is not None else ""
        return f"{self.type}: {next(iter(self.message.splitlines()), '')[:_MAX_MESSAGE]}{place}"


class Shortage(msgspec.Struct, frozen=True):
    """The first allocation that the device could not have served."""

    device: str
    requested_bytes: int
    allocated_bytes: int
    reserved_bytes: int
    capacity_bytes: int
    """What the caching allocator may reserve: the device's memory less the stated allowance."""
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
    """What context, libraries and communicators take beside the caching allocator."""
    total_bytes: int
    peak_phase: Phase
    peak_step: int
    by_category: dict[str, int]
    """Bytes by category at the moment of the peak; keys are :data:`CATEGORIES`."""
    top_modules: tuple[ModuleBytes, ...] = ()
    """The ten single modules that hold most."""
    modules: tuple[ModuleMemory, ...] = ()
    """All that holds memory at the peak: of each category it adds up to :attr:`by_category`."""
    shortage: Shortage | None = None
    phases: tuple[PhaseMemory, ...] = ()
    """Of a training that rolls out: each phase's peak, in the order of first entry."""


class HostMemory(msgspec.Struct, frozen=True):
    """Host memory of one rank: what its CPU tensors would have taken."""

    peak_bytes: int
    peak_pinned_bytes: int
    peak_phase: Phase
    peak_step: int
    by_category: dict[str, int]
    modules: tuple[ModuleMemory, ...] = ()
    """As of :class:`DeviceMemory`."""
    steady_peak_bytes: int = 0
    """The peak outside loading and saving, in which a node's first rank may do what the others do not."""
    load_peak_bytes: int = 0
    """The peak up to the end of the first loading."""


FIRST_RANK_READS_ASSUMPTION = "from_pretrained: a node's first rank alone reads the weights"
"""The event of a loading in which the other ranks get theirs from the first: ZeRO-3's, and FSDP's."""
GUESSED_BATCH_ASSUMPTION = "the batch is made from the signature of forward and the configuration"
"""What is assumed where no processor, and no program of the user's, makes images, sounds and the like."""
SYNTHETIC_COMPLETIONS_ASSUMPTION = (
    "the completions: of each batch the first has max_tokens tokens, the second ends at once, the others lie between; "
    "their words are arbitrary"
)
"""What is assumed of what a model or an engine generates."""


class TensorPlace(msgspec.Struct, frozen=True):
    """Where a parameter or buffer was when training began; its ``shape`` is (0,) where ZeRO-3 had partitioned it."""

    name: str
    device: str
    dtype: str
    shape: tuple[int, ...]
    is_buffer: bool = False


class LoadedWeights(msgspec.Struct, frozen=True):
    """A model that ``from_pretrained`` made with values that its checkpoint did not give: drawn at random."""

    model: str
    """Its class."""
    source: str
    """The name or folder that was loaded."""
    parameters: int
    missing_parameters: int
    """How many of :attr:`parameters` are in the weights that were drawn."""
    missing: tuple[str, ...]
    """The names of these weights, as transformers says them."""
    held: tuple[str, ...] = ()
    """Those of :attr:`missing` that stand in the files that were read, under that very name."""
    named_instead: str | None = None
    """A longer name in the files that ends in that of a missing weight: a wrapper's prefix was left on."""
    under_zero3: bool = False
    """Whether its parameters were divided over the ranks as they were made."""
    frames: tuple[Frame, ...] = ()
    """The stack of the call, outermost call first."""

    @property
    def share(self) -> float:
        """The share of the model's parameters that were drawn, 0 to 1."""
        return self.missing_parameters / max(self.parameters, 1)


class Unsupported(msgspec.Struct, frozen=True):
    """Something that can't be rehearsed (a compiled extension, a Triton kernel): its name and place."""

    what: str
    where: str
    why: str
    why_zh: str = ""
    """:attr:`why` in Chinese; empty where that is an operator's, which has English words alone."""
    environment: str = ""
    """The file of the project whose packages it needs; empty where it is not for want of those."""


class MissingInput(msgspec.Struct, frozen=True):
    """A name of the hub that the program asked for, or a folder of data, that nothing on this machine answers for."""

    kind: Literal["model", "data"]
    name: str
    subset: str | None = None
    """Of a data set: the configuration asked for."""
    split: str | None = None
    files: tuple[str, ...] = ()
    """Of a folder of data: the files asked for in it."""


class FailedLookup(msgspec.Struct, frozen=True):
    """Something that the program, or a library for it, asked for before a failure and that was not there, or was made.

    Told by who asked (the importer, the functions that open and look, the loader of libraries), whatever the exception
    says afterwards.
    """

    kind: Literal["file", "folder", "module", "library", "program", "address", "made"]
    """``folder``: one that was listed, and may lack what other ranks would have written to it. ``made``: a file or
    folder that gonogo made in place of one that is not here, and that was read."""
    name: str
    asked: Frame
    """The innermost frame, other than Python's own, that asked."""
    shared: Frame | None = None
    """In the innermost function that ran both then and when it failed: the line that it was at then."""
    failed_at: int = 0
    """The line of that function that it was at when it failed."""
    raised_below: bool = False
    """Whether that function is the one that raised; of a ``folder``, whether it is of the same package."""
    phase: Phase = "load"
    step: int = 0
    written: bool = False
    """Whether it lies in a folder in which the program itself has written."""
    handed: bool = False
    """Whether it is a path that was handed to what failed, looked for by no function that tells of it."""


class AdvancedLoop(msgspec.Struct, frozen=True):
    """A test of a loop's counter, and what the counter was given so that it holds; without a counter: it can't be."""

    place: str
    """``file:line``."""
    text: str
    counter: str = ""
    before: int = 0
    value: int = 0
    sure: bool = True
    """Whether the loop surely comes to that number."""


class OmittedPart(msgspec.Struct, frozen=True):
    """A part of the run that the rehearsal left out, and why, in English and Chinese."""

    what: str
    what_zh: str
    why: str
    why_zh: str


class RankRecord(msgspec.Struct):
    """All that one rank's worker saw."""

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
    """Phases that the program's settings say a real run would reach (``evaluate`` where one is configured ...)."""
    last_activity: str = ""
    """What it was doing last (phase, step, module), for a worker that timed out or was killed."""
    failure: Failure | None = None
    devices: list[DeviceMemory] = []
    host: HostMemory | None = None
    timelines: list[MemoryTimeline] = []
    """Memory over time of each device, the host among them."""
    collectives: list[CollectiveTotal] = []
    assumptions: list[Assumption] = []
    unsupported: list[Unsupported] = []
    unused_parameters: list[str] = []
    """Trainable parameters that took part in no forward."""
    parameters_without_gradient: list[str] = []
    """Trainable parameters that took part in a forward, and got no gradient in any step."""
    left_on_cpu: list[TensorPlace] = []
    """Parameters and buffers of the trained model that were on the CPU though the others were on the device."""
    parameter_count: int = 0
    as_run: AsRun | None = None
    """What was run, as seen; None where nothing was trained."""
    deepspeed_config: dict[str, object] | None = None
    """The config as the engine resolved it, or None where no engine was made."""
    device_map: dict[str, object] | None = None
    """What ``from_pretrained`` spread the model by, or None."""
    device_map_frames: list[Frame] = []
    """The stack of the call that set :attr:`device_map`, outermost call first."""
    drawn_weights: list[LoadedWeights] = []
    """The models that were loaded without all of their weights."""
    versions: dict[str, str] = {}
    """Versions of the stack as imported in the worker."""
    saved_bytes: int = 0
    """What a real run would have written in checkpoints and saved models."""
    events: list[str] = []
    """Facts worth telling that fit nowhere else, in order ("from_pretrained: read 3 safetensors headers")."""
    starts_processes: int | None = None
    """How many processes the program was about to start itself, to train in them."""
    user_error: tuple[str, str] | None = None
    """A sentence, in English and Chinese, for what the user has to provide (a model's config that is nowhere)."""
    stack: list[Frame] = []
    """Where the program was, for one that was ended from outside."""
    rss_bytes: int = 0
    """Peak resident memory of the worker itself: what the rehearsal cost."""
    batch: list[tuple[str, str]] = []
    """The last batch that was read: (name, type and shape)."""
    batches: int = 0
    """How many batches were read."""
    empty_pass: bool = False
    """Whether a pass over the training data had no batch, or its loader told so, before any step."""
    loading: LoaderSharedMemory | None = None
    """What worker processes of its data loader would pass through /dev/shm; None where there are none."""
    batches_left: int | None = None
    """How many were left where the rehearsal ended the data, where that differs between the ranks."""
    formed_world: int = 1
    """How many ranks the program's process group had when it stepped."""
    workers: list[str] = []
    """Processes of Ray that were rehearsed with the program, each name with their number: ``WorkerDict x 8``."""
    data_ended: Assumption | None = None
    read_beyond: Assumption | None = None
    """That training goes on to where its data was at the end: a batch far beyond the first was brought forward."""
    """Where the rehearsal first ended data before its end, so that what comes after sees less of it."""
    data_shapes: list[str] = []
    """By rank, what kinds of batches it will read first; only where the worker was sent to look, and could tell."""
    parameter_names: dict[int, str] = {}
    """Names of the parameters by DeepSpeed's numbers, where several ranks are rehearsed together."""
    pipeline: tuple[int, int, int] = (1, 1, 1)
    """Stages, micro-batches of a step, and parts of the model on each rank: what a schedule waits for follows."""
    work: list[PhaseWork] = []
    """What it computed and moved, where that was asked for."""
    stopped_by: tuple[int, str] | None = None
    """(rank, its outcome) of the rank that had ended while this one waited for it, where its failure is the cause."""
    missed: list[MissingInput] = []
    """What it asked the hub for in vain."""
    advanced_loops: list[AdvancedLoop] = []
    """Loops whose counter was set so that what they do only later is rehearsed."""
    left_out: list[OmittedPart] = []
    """What of the run was left out."""
    confinement: ConfinementKind = ""
    """What the kernel confined the program by; empty in a record of an older gonogo, or where it never ran."""
    absent: list[FailedLookup] = []
    """What was asked for in vain before a failure, and may have to do with it."""
    imported: dict[str, str] = {}
    """Of a rank that failed: the distributions (canonical names) that it had imported from, and their versions."""
    made_operands: list[str] = []
    """What gonogo made (a tokenizer, a stand-in's object) that the statement which failed was given."""
    certificate: list[Obligation] = []
    """Of a rank that failed: what has to be so for that to be the real run's failure."""
    life: RankLife | None = None
    """What it saw of the run's life, where that is rehearsed."""


class AcceleratorFacts(msgspec.Struct, frozen=True):
    """The accelerator that was rehearsed on."""

    name: str
    device_type: str
    total_bytes: int
    allowance_bytes: int


class RehearsalRecord(msgspec.Struct):
    """A rehearsal: the world, and the ranks that were run in it."""

    command: list[str]
    cwd: str
    world_size: int
    """Ranks of the process group that the program formed, or those that the launch starts where they are more."""
    nodes: int
    ranks_per_node: int
    accelerator: AcceleratorFacts
    steps: int
    host_memory_bytes: int | None
    """A node's host memory, or None where it was not stated."""
    seconds: float = 0.0
    ranks: list[RankRecord] = []
    launcher: str = "python"
    launched: int | None = None
    """Ranks that the launch itself starts, where the program starts others."""
    skipped: list[tuple[str, str]] = []
    """(what, why) that the parent left out, e.g. a version that could not be laid over."""
    skipped_zh: list[tuple[str, str]] = []
    """:attr:`skipped` in Chinese, entry by entry; empty where it was written by an older gonogo."""
    notes: list[tuple[str, str]] = []
    """Facts about how the command was understood, in English and Chinese."""
    divergence: Divergence | None = None
    """Where the rehearsed ranks diverged; None where they did not, or where one rank alone was rehearsed."""
    laid_over: dict[str, str] = {}
    """Packages (canonical name) that were rehearsed in another version than is installed."""
    shm_bytes: int | None = None
    """A node's /dev/shm, where what the command was taken from says it."""
    differing: list[str] = []
    """Packages (canonical name) that the environment's file asks for and that were replaced or left out."""
    whole_environment: bool = False
    """Whether :attr:`laid_over` are all the packages that there were: nothing of the installed ones was seen."""
    life_part: LifePart = ""
    """Which of two lives it is of, where the whole life was asked for: ``first`` where it came to no second one."""
    first_life: RehearsalRecord | None = None
    """Of a second life: the record of the first."""
    checkpoint_bytes: dict[str, int] = {}
    """Of the first life: every file that it wrote from its first step on, of all ranks, and its size."""
    life_stages: tuple[str, ...] = ()
    """What was asked for of a run's life."""
    second_life: RehearsalRecord | None = None
    """Of a stage that failed after the run was resumed: the record of the resumed run."""
    afterwards: list[RehearsalRecord] = []
    """What was made of the checkpoint after the lives: a record of each stage that went through."""
    interruptions: list[Interruption] = []
    """Of a second life: what the resume comes to where the first was killed in the middle of its save."""
    moments_not_tried: int = 0
    resumes_as_given: bool = True
    """Whether the second life's command was the first's, word by word."""

    def was_written_before(self, path: str) -> bool:
        """Whether the first life, of which all ranks are known, wrote into a folder, or beside a file.

        What is not there then is nowhere: the run itself has not written it.
        """
        first = self.first_life
        if first is None or (first.world_size > 1 and not {0, 1} <= {rank.rank for rank in first.ranks}):
            return False
        whole = os.path.normpath(os.path.join(first.cwd, path))
        folders = {os.path.dirname(file) for file in first.checkpoint_bytes}
        return whole in folders or (os.path.dirname(whole) in folders and os.path.dirname(whole) != first.cwd)
