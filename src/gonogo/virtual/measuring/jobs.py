"""The messages to and from the measuring process, as lines of JSON."""

from __future__ import annotations

import msgspec

from gonogo.evidence.rehearsal.record import RankRecord
from gonogo.evidence.rehearsal.work import PhaseWork


class MeasurementJob(msgspec.Struct, frozen=True):
    """One short rehearsal of ``gonogo.virtual.measuring.program`` with a given world size."""

    name: str
    arguments: tuple[str, ...]
    world_size: int
    local_world_size: int
    answer: str
    """Path of the file to which the :class:`Measured` or :class:`ModelFacts` is written as JSON."""
    timeout: float
    steps: int
    capacity: int | None = None
    """Limit in bytes of what the caching allocator may reserve; None if unlimited."""
    describe: bool = False
    """Only return the :class:`ModelFacts`, without a rehearsal."""
    program: str = "gonogo.virtual.measuring.program"
    """The module that is run."""


class PhasePeak(msgspec.Struct, frozen=True):
    """The peak of allocated memory in one phase of the program, and its composition. Bytes."""

    allocated: float
    by_category: dict[str, float]
    """Keys are :data:`gonogo.evidence.rehearsal.record.CATEGORIES`."""


class Measured(msgspec.Struct, frozen=True):
    """The result of a short rehearsal."""

    record: RankRecord
    work: tuple[PhaseWork, ...]
    peaks: dict[str, PhasePeak]
    """Peak per phase: with more layers or samples another phase may have the highest."""


class EngineFacts(msgspec.Struct, frozen=True):
    """GPU memory of one rank of a rollout engine, with ``tp`` ranks sharing the model. Bytes."""

    tp: int
    weights: int
    cache_of_token: int
    forward: int
    """Activations of the profiling forward, with TRL's ``max_num_batched_tokens``."""
    sampler_of_sequence: int
    """Additional memory in the profiling run per sequence that may run concurrently."""
    graphs: int
    graphs_in_share: bool
    """True if the release reserves room for its CUDA graphs within its share of the GPU."""

    def profiled_bytes(self, num_sequences: int) -> int:
        """What the engine's profiling measures in addition to its weights."""
        return max(self.forward, num_sequences * self.sampler_of_sequence)


class ModelFacts(msgspec.Struct, frozen=True):
    """The facts about a model that ``gonogo plan`` needs."""

    model_class: str
    parameters: int
    trainable: int
    layer_parameters: int
    """Parameters of one repeated layer; 0 if the model's depth can't be changed."""
    depth: int
    period: int
    """Number of layers after which the pattern of layers repeats."""
    hidden_size: int
    vocabulary: int
    largest_parameter: int
    """Elements of the largest single parameter."""
    weight_bytes: int
    """Size of all weights on a single GPU."""
    dtype: str = "bf16"
    engine: tuple[EngineFacts, ...] = ()
    """One entry per tensor-parallel size that divides the heads; empty if no engine is requested or it is not
    supported."""
    stored_class: str = ""
    """The class of the checkpoint, if a different one is trained."""
    beside_parameters: int = 0
    """Parameters of the reward model or the teacher."""
    positions: int = 0
    """The longest sequence for which the config states positions; 0 if it states none."""
    computes_positions: bool = True
    """Whether longer sequences run nevertheless, as with rotary positions."""
    ulysses_sizes: tuple[int, ...] = ()
    """Over how many ranks DeepSpeed's Ulysses can split a sequence of this model; empty if a release is too old."""
    tensor_sizes: tuple[int, ...] = ()
    """Over how many ranks transformers can split every layer of this model; empty if a release is too old."""
    expert_sizes: tuple[int, ...] = ()
    """Over how many ranks transformers can spread its experts while tokens are exchanged; empty if it has none."""
    expert_parameters: int = 0
    """Parameters of all experts that can be spread."""
    experts_of_token: int = 0
    """Experts that each token is sent to."""
    first_rank_reads: bool = True
    """Under FSDP, whether this release of transformers reads the weights on a node's first rank only."""


class JobEnded(msgspec.Struct, frozen=True):
    """A finished job: ``""`` if its answer was written, otherwise the reason for its failure."""

    name: str
    why: str
