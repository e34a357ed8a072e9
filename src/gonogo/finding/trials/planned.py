"""A plan in a report, as its JSON shows it: strategies that fit, fastest first, and those that don't.

Sizes are in bytes, of one accelerator or of a node's host memory.
"""

from __future__ import annotations

import msgspec

from gonogo.finding.text import Text

SPEED_TOLERANCE = 0.05
"""Relative difference in speed below which step times are too uncertain to rank by: the simplest strategy is first."""


class Model(msgspec.Struct, frozen=True):
    """The model to be trained; counts are numbers of parameters."""

    name: str
    model_class: str = msgspec.field(name="class")
    parameters: int
    trainable: int
    layers: int


class Rollout(msgspec.Struct, frozen=True):
    """What generates completions: a colocated engine, an engine on GPUs of its own, or the model itself."""

    engine: str
    """``colocate``, ``server`` or ``none``."""
    tensor_parallel: int
    memory_share: float
    """The engine's share of the memory of each of its GPUs; 0 without an engine."""
    sleep: bool
    gpus: int
    """Number of GPUs that a server has, over all nodes; the others train."""
    seconds_of_step: float
    """Estimated time for generation, including the transfer of weights to the engine."""


class StrategySummary(msgspec.Struct, frozen=True, kw_only=True):
    """A strategy for training on these accelerators. ``band`` is the memory's uncertainty, as a share of it."""

    strategy: str
    strategy_zh: str = ""
    sharding: str = "zero"
    """``zero`` (DeepSpeed), ``fsdp2``, or ``fsdp2-no-reshard``."""
    replicas: int = 1
    """Groups of ranks that each hold all states, sharded within the group (HSDP)."""
    context_parallel: int = 1
    """Number of ranks that share each sequence."""
    tensor_parallel: int = 1
    """Number of ranks over which every layer is split."""
    expert_parallel: int = 1
    """Number of ranks over which the experts are spread."""
    zero_stage: int
    """3 for FSDP2, which shards the same states."""
    offload_optimizer: str
    offload_parameters: str
    small_buckets: bool
    gradient_checkpointing: bool
    micro_batch: int
    gradient_accumulation: int
    source: str
    """The basis of the figures: ``rehearsed``, ``extended`` or ``formula``."""
    allocated_bytes: int
    reserved_bytes: int
    band: float
    host_bytes_of_node: int
    nvme_bytes_of_node: int
    by_category: dict[str, int]
    seconds_of_step: float
    tokens_per_second_per_gpu: float
    limit: str
    limit_said: Text
    why: tuple[Text, ...]
    reference: str = ""
    """Reference model for preferences and rewards: ``model``, ``adapter`` or ``precomputed``; empty if none."""
    rollout: Rollout | None = None


class SolutionSummary(StrategySummary, frozen=True, kw_only=True):
    """A strategy with the result of ``--solve``; ``at_limit`` if the search stopped at its upper limit."""

    solved: int
    at_limit: bool
    gpus: int
    nodes: int


class StrategyTooLarge(StrategySummary, frozen=True, kw_only=True):
    """A strategy that doesn't fit, and what would make it fit."""

    shortfall: Text
    would_fit: tuple[Text, ...]


class Cost(msgspec.Struct, frozen=True):
    """The cost of a strategy for all tokens of a training: hours, and money in the price table's currency."""

    strategy: str
    hours_at_least: float
    hours_at_most: float
    cost_at_least: float
    cost_at_most: float
    strategy_zh: str = ""


class MemoryAtLength(msgspec.Struct, frozen=True):
    """A strategy's memory on one accelerator with samples of ``seq_len`` tokens and the same micro-batch."""

    strategy: str
    micro_batch: int
    seq_len: int
    allocated_bytes: int
    reserved_bytes: int
    band: float
    fits: bool
    """Whether it also fits at the upper end of the band, in host memory and on NVMe too."""
    strategy_zh: str = ""


class Plan(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The strategies for training a model on given accelerators, with the settings on which they are based."""

    model: Model
    accelerator: str
    gpus: int
    """Number per node."""
    nodes: int
    capacity_bytes: int
    host_memory_bytes: int | None
    seq_len: int
    tune: str
    global_batch: int
    task: str = ""
    """The training task; empty for plain fine-tuning."""
    prompt_len: int = 0
    generations: int = 0
    solve: str = ""
    """The quantity to maximize or solve for: ``seq-len``, ``micro-batch``, ``gpus``, ``generations``, or nothing."""
    fitting: tuple[StrategySummary, ...]
    too_large: tuple[StrategyTooLarge, ...]
    seconds: float
    tokens: int = 0
    """The number of tokens on which ``costs`` are based; 0 without a price table."""
    currency: str = ""
    costs: tuple[Cost, ...] = ()
    """For the strategies that fit, in the same order."""
    memory_at: tuple[MemoryAtLength, ...] = ()
    """For the first strategies, one after the other, at each length that was asked for."""
    files: tuple[tuple[tuple[str, str], ...], ...] = ()
    """For each of them, (name, text) of its launch files: for an HTML page; the JSON doesn't contain them."""
