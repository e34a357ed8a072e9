"""How long an engine generates: an estimate, by what has to be read for each token.

Each step of decoding reads all weights and the keys and values of all sequences that run, and multiplies by the weights
once for each sequence; the prompts are computed before, as a forward pass is. Pope et al., "Efficiently Scaling
Transformer Inference" (https://arxiv.org/abs/2211.05102), §2.1: decoding is bound by memory until the batch is large.
Reached shares of bandwidth and FLOP/s are those of the training's roofline. Not in it: sampling, scheduling, Python,
sequences that end early, speculative decoding. So it is no promise; it says which of two engines is the faster.
"""

from __future__ import annotations

from gonogo.evidence.environment.hardware import Speed
from gonogo.trials.plan.roofline import LAUNCH_SECONDS, LINK_SHARE, MATMUL_SHARE, MEMORY_SHARE
from gonogo.virtual.measuring.jobs import EngineFacts, Facts

_KERNELS_OF_LAYER = 10
"""Norms, projections, rotation, attention, activation: launched one by one, or replayed as a graph."""
_MIN_REDUCE_SECONDS = 15e-6
"""An all-reduce of a few KiB within a node: its latency, as nccl-tests shows it over NVLink."""
_REDUCED_OF_LAYER = 2
"""All-reduces of a layer under tensor parallelism, behind attention and behind the MLP (Megatron-LM, §3)."""


def generation_seconds(
    facts: Facts, engine: EngineFacts, speed: Speed, *, cache: float, completions: int, generations: int, prompt: int,
    completion: int,
) -> float:  # fmt: skip
    """Seconds in which ``engine.tp`` GPUs write so many completions, ``generations`` for each prompt, to their limit.

    ``cache``: bytes of one rank's. As many sequences run at once as it holds whole; the rest wait for their turn.
    """
    of_sequence = max((prompt + completion) * engine.cache_of_token, 1)
    at_once = max(min(completions, int(cache // of_sequence)), 1)
    turns = -(-completions // at_once)
    memory, matmul = speed.memory_bytes * MEMORY_SHARE, speed.matmul_flops * MATMUL_SHARE
    weights = 2.0 * facts.parameters
    read = (engine.weights + at_once * (prompt + completion / 2) * engine.cache_of_token) / memory
    multiplied = weights * at_once / (engine.tp * matmul)
    launched = facts.depth * _KERNELS_OF_LAYER * LAUNCH_SECONDS
    reduced = 0.0
    if engine.tp > 1:
        moved = 2.0 * at_once * facts.hidden_size * 2 * (engine.tp - 1) / engine.tp
        once = max(moved / (speed.link_bytes * LINK_SHARE), _MIN_REDUCE_SECONDS)
        reduced = facts.depth * _REDUCED_OF_LAYER * once
    decoding = turns * completion * (max(read, multiplied, launched) + reduced)
    prompts = -(-completions // generations)
    return decoding + weights * prompts * prompt / (engine.tp * matmul)


def sync_seconds(engine: EngineFacts, speed: Speed, *, server: bool) -> float:
    """Seconds of the weights' way into the engine: within the GPU's memory, or over a link to the server's GPUs."""
    if server:
        return engine.weights * engine.tp / (speed.link_bytes * LINK_SHARE)
    return 2.0 * engine.weights / (speed.memory_bytes * MEMORY_SHARE)
