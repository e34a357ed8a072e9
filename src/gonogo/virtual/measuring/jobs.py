"""What the measuring process is asked, and what it answers; both as lines of JSON."""

from __future__ import annotations

import msgspec

from gonogo.evidence.rehearsal.record import RankRecord
from gonogo.evidence.rehearsal.work import PhaseWork


class MeasurementJob(msgspec.Struct, frozen=True):
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
    program: str = "gonogo.virtual.measuring.program"
    """The module that is run."""


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


class EngineFacts(msgspec.Struct, frozen=True):
    """What one rank of a rollout engine takes of a GPU for the model, with ``tp`` ranks to share it. Bytes."""

    tp: int
    weights: int
    cache_of_token: int
    forward: int
    """Activations of the forward by which the engine measures itself, with TRL's ``max_num_batched_tokens``."""
    sampler_of_sequence: int
    """Of each sequence that may run at once, in the same measurement."""
    graphs: int
    graphs_in_share: bool
    """Whether the release leaves room for its CUDA graphs within its share of the GPU."""

    def profiled(self, num_sequences: int) -> int:
        """What the engine measures beside its weights."""
        return max(self.forward, num_sequences * self.sampler_of_sequence)


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
    engine: tuple[EngineFacts, ...] = ()
    """By tensor-parallel size, as far as the heads can be divided; none where no engine is asked for, or known."""
    stored_class: str = ""
    """The class of the model's checkpoint, where the one that is trained is another."""
    beside_parameters: int = 0
    """Of the reward model or the teacher."""


class JobEnded(msgspec.Struct, frozen=True):
    """A job is over: ``""`` where its answer was written, else why there is none."""

    name: str
    why: str
