"""What a report says of a plan, as its JSON has it: strategies that fit, fastest first, and those that don't.

Sizes are bytes, of one accelerator or of a node's host memory.
"""

from __future__ import annotations

import msgspec

from gonogo.finding.text import Text


class Model(msgspec.Struct, frozen=True):
    """The model that is to be trained; counts are of parameters."""

    name: str
    model_class: str = msgspec.field(name="class")
    parameters: int
    trainable: int
    layers: int


class Rollout(msgspec.Struct, frozen=True):
    """What generates completions: an engine in the trainer's processes, or on GPUs of its own, or the model itself."""

    engine: str
    """``colocate``, ``server`` or ``none``."""
    tensor_parallel: int
    memory_share: float
    """Of each of its GPUs; 0 of no engine."""
    sleep: bool
    gpus: int
    """That a server has, of all nodes; the rest train."""
    seconds_of_step: float
    """Of generating, by estimate, with the weights' way to the engine."""


class StrategySummary(msgspec.Struct, frozen=True, kw_only=True):
    """A way to train it on these accelerators. ``band`` is how far the memory may be off, as a share of it."""

    strategy: str
    strategy_zh: str = ""
    zero_stage: int
    offload_optimizer: str
    offload_parameters: str
    small_buckets: bool
    gradient_checkpointing: bool
    micro_batch: int
    gradient_accumulation: int
    source: str
    """What the figures rest on: ``rehearsed``, ``extended`` or ``formula``."""
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
    """Of preferences and rewards: ``model``, ``adapter`` or ``precomputed``; empty where none is held."""
    rollout: Rollout | None = None


class SolutionSummary(StrategySummary, frozen=True, kw_only=True):
    """A strategy with what ``--solve`` found for it; ``at_limit`` where more was not tried."""

    solved: int
    at_limit: bool
    gpus: int
    nodes: int


class TooLarge(StrategySummary, frozen=True, kw_only=True):
    """A strategy that does not fit, with what would make it fit."""

    shortfall: Text
    would_fit: tuple[Text, ...]


class Cost(msgspec.Struct, frozen=True):
    """What a strategy takes for all tokens of a training: hours, and money in the currency of the table of prices."""

    strategy: str
    hours_at_least: float
    hours_at_most: float
    cost_at_least: float
    cost_at_most: float
    strategy_zh: str = ""


class Plan(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A plan."""

    model: Model
    accelerator: str
    gpus: int
    """On each node."""
    nodes: int
    capacity_bytes: int
    host_memory_bytes: int | None
    seq_len: int
    tune: str
    global_batch: int
    task: str = ""
    """What it is trained by; empty for plain fine-tuning."""
    prompt_len: int = 0
    generations: int = 0
    solve: str = ""
    """What was asked for: ``seq-len``, ``micro-batch``, ``gpus``, ``generations``, or nothing."""
    fitting: tuple[StrategySummary, ...]
    too_large: tuple[TooLarge, ...]
    seconds: float
    tokens: int = 0
    """That ``costs`` are for; 0 without a table of prices."""
    currency: str = ""
    costs: tuple[Cost, ...] = ()
    """Of the strategies that fit, in their order."""
    files: tuple[tuple[tuple[str, str], ...], ...] = ()
    """Of each of them, (name, text) of what it is launched with: for a page; the JSON is without."""
