"""The rollout engine of a strategy: its GPU memory, whether it starts, and the time of generation."""

from __future__ import annotations

from gonogo.evidence.environment.hardware import PeakSpeed
from gonogo.trials.plan.request import PlanRequest
from gonogo.trials.plan.roofline import LINK_SHARE, MEMORY_SHARE, NETWORK_BYTES_PER_SECOND
from gonogo.trials.plan.sizing.engine_layouts import server_engine_memory
from gonogo.trials.plan.strategy import Strategy
from gonogo.trials.plan.task.rollout import EngineMemory, engine_memory
from gonogo.virtual.measuring.jobs import EngineFacts, ModelFacts
from gonogo.virtual.tracing.operator_time import LAUNCH_SECONDS

_KERNELS_PER_LAYER = 10
"""Norms, projections, rotary embedding, attention, activation: launched one by one, or replayed as a CUDA graph."""
_MIN_REDUCE_SECONDS = 15e-6
"""The latency of an all-reduce of a few KiB within a node, as nccl-tests measures over NVLink."""
_ALL_REDUCES_PER_LAYER = 2
"""Tensor parallelism needs an all-reduce after attention and one after the MLP (Megatron-LM, §3)."""


def engine_facts(facts: ModelFacts, strategy: Strategy) -> EngineFacts | None:
    """The engine's figures at the strategy's tensor-parallel size; None if there is no engine."""
    if strategy.rollout.engine not in ("colocate", "server"):
        return None
    return next((one for one in facts.engine if one.tp == strategy.rollout.tp), None)


def colocated_engine_memory(request: PlanRequest, facts: ModelFacts, strategy: Strategy) -> EngineMemory | None:
    """The engine's memory on the trainer's GPUs; None if it isn't colocated."""
    known = engine_facts(facts, strategy)
    if known is None or strategy.rollout.engine != "colocate":
        return None
    # TRL's max_num_seqs: the samples per step of all ranks that share an engine.
    sequences = strategy.micro_batch * strategy.accumulation * known.tp
    return engine_memory(known, strategy.rollout, sequences, request.machine.accelerator.total_bytes)


def start_margin(request: PlanRequest, facts: ModelFacts, strategy: Strategy, held: float) -> float | None:
    """Spare bytes when the engine starts beside ``held`` bytes of the trainer; negative if it may not start."""
    engine, known = colocated_engine_memory(request, facts, strategy), engine_facts(facts, strategy)
    if engine is None or known is None:
        return None
    accelerator = request.machine.accelerator
    longest = request.seq_len * known.cache_of_token
    return engine.margin(longest, held, accelerator.total_bytes, accelerator.allowance_bytes)


def rollout_seconds(request: PlanRequest, facts: ModelFacts, strategy: Strategy) -> float:
    """Time to generate a step's completions, including the weight sync. ``request``: for the trainer's GPUs."""
    known, task = engine_facts(facts, strategy), request.task
    speed = request.machine.accelerator.speed
    if known is None or task is None or speed is None:
        return 0.0
    rollout, samples = strategy.rollout, strategy.micro_batch * strategy.accumulation
    if rollout.engine == "server":
        cache, engines = server_engine_memory(request, known).cache, rollout.gpus // known.tp
        completions = -(-samples * request.world_size // engines)
        over_network = request.machine.nodes > 1
        link = (request.network_bytes_per_second or NETWORK_BYTES_PER_SECOND) * LINK_SHARE
        bringing = known.weights * known.tp / link if over_network else weight_sync_seconds(known, speed, server=True)
    else:
        engine = colocated_engine_memory(request, facts, strategy)
        cache, completions = 0.0 if engine is None else engine.cache, samples * known.tp
        bringing = weight_sync_seconds(known, speed, server=False)
    return bringing + generation_seconds(
        facts, known, speed, cache=cache, completions=completions, generations=task.generations,
        prompt=task.prompt_len, completion_tokens=task.completion_len,
    )  # fmt: skip


def generation_seconds(
    facts: ModelFacts, engine: EngineFacts, speed: PeakSpeed, *, cache: float, completions: int, generations: int,
    prompt: int, completion_tokens: int,
) -> float:  # fmt: skip
    """Time for ``engine.tp`` GPUs to generate the completions, ``generations`` per prompt, to their maximum length.

    An estimate from the memory traffic per token: each decoding step reads all weights and the KV cache of all
    running sequences, and multiplies by the weights once per sequence; prompts are prefilled before, like a forward
    pass. Decoding is memory-bound until the batch is large: Pope et al., "Efficiently Scaling Transformer Inference"
    (https://arxiv.org/abs/2211.05102), §2.1. The fractions of bandwidth and FLOP/s that are reached are those of the
    training's roofline. Not included: sampling, scheduling, Python, sequences that end early, speculative decoding.

    ``cache``: KV cache bytes per rank. It limits the number of sequences that run at once; the others are queued.
    """
    of_sequence = max((prompt + completion_tokens) * engine.cache_of_token, 1)
    at_once = max(min(completions, int(cache // of_sequence)), 1)
    turns = -(-completions // at_once)
    memory, matmul = speed.memory_bytes * MEMORY_SHARE, speed.matmul_flops * speed.matmul_share
    weights = 2.0 * facts.parameters
    read = (engine.weights + at_once * (prompt + completion_tokens / 2) * engine.cache_of_token) / memory
    multiplied = weights * at_once / (engine.tp * matmul)
    launched = facts.depth * _KERNELS_PER_LAYER * LAUNCH_SECONDS
    reduced = 0.0
    if engine.tp > 1:
        moved = 2.0 * at_once * facts.hidden_size * 2 * (engine.tp - 1) / engine.tp
        once = max(moved / (speed.link_bytes * LINK_SHARE), _MIN_REDUCE_SECONDS)
        reduced = facts.depth * _ALL_REDUCES_PER_LAYER * once
    decoding = turns * completion_tokens * (max(read, multiplied, launched) + reduced)
    prompts = -(-completions // generations)
    return decoding + weights * prompts * prompt / (engine.tp * matmul)


def weight_sync_seconds(engine: EngineFacts, speed: PeakSpeed, *, server: bool) -> float:
    """Time to transfer the weights to the engine: within GPU memory, or over a link to the server's GPUs."""
    if server:
        return engine.weights * engine.tp / (speed.link_bytes * LINK_SHARE)
    return 2.0 * engine.weights / (speed.memory_bytes * MEMORY_SHARE)
