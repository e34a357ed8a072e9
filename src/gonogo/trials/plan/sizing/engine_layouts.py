"""The options for generation within a request: which engine, on which GPUs, tensor-parallel size, memory share."""

from __future__ import annotations

from collections.abc import Iterator

from gonogo.trials.plan.request import PlanRequest
from gonogo.trials.plan.sizing.batches import global_batch
from gonogo.trials.plan.task.rollout import (
    SERVER_MEMORY_SHARE,
    EngineMemory,
    RolloutChoice,
    Where,
    engine_memory,
    memory_shares,
)
from gonogo.virtual.measuring.jobs import EngineFacts, ModelFacts

_MAX_CONCURRENT_SEQUENCES = 256
"""Concurrent sequences of a server: vLLM's default ``max_num_seqs`` on GPUs below 70 GiB, sufficient for any."""


def list_engine_layouts(request: PlanRequest, facts: ModelFacts) -> Iterator[tuple[Where, int]]:
    """The engines, each with the number of GPUs, over all nodes, that it occupies exclusively."""
    assert request.task is not None
    for engine in request.task.engines:
        if engine == "server":
            yield from ((engine, gpus) for gpus in _server_gpu_counts(request) if server_engines(request, facts, gpus))
        else:
            yield engine, 0


def _server_gpu_counts(request: PlanRequest) -> Iterator[int]:
    """One of several nodes, or 1, 2, 4 … GPUs of a single one, up to half, if the remaining ones divide the batch."""
    machine = request.machine
    counts = [machine.count] if machine.nodes > 1 else [1 << power for power in range(8) if 2 << power <= machine.count]
    for gpus in counts:
        left = request.without_server_gpus(gpus)
        if global_batch(left) % left.world_size == 0:
            yield gpus


def server_engines(request: PlanRequest, facts: ModelFacts, gpus: int) -> list[EngineFacts]:
    """The tensor-parallel sizes at which a server with that many GPUs has room for the model and a cache."""
    return [
        one
        for one in facts.engine
        if gpus % one.tp == 0 and one.tp <= request.machine.count and _can_serve(request, one)
    ]


def _can_serve(request: PlanRequest, engine: EngineFacts) -> bool:
    accelerator = request.machine.accelerator
    room = server_engine_memory(request, engine)
    return room.cache > request.seq_len * engine.cache_of_token and room.share < accelerator.total_bytes


def server_engine_memory(request: PlanRequest, engine: EngineFacts) -> EngineMemory:
    """The memory of a server's rank on its GPU."""
    requested = RolloutChoice("server", engine.tp, SERVER_MEMORY_SHARE)
    return engine_memory(engine, requested, _MAX_CONCURRENT_SEQUENCES, request.machine.accelerator.total_bytes)


def rollout_choices(
    request: PlanRequest, facts: ModelFacts, engine: Where, gpus: int, samples: int
) -> Iterator[list[RolloutChoice]]:
    """Choices of an engine for ``samples`` completions per trainer GPU: a list per layout, by rising memory share."""
    if engine == "server":
        yield from ([RolloutChoice(engine, one.tp, gpus=gpus)] for one in server_engines(request, facts, gpus))
        return
    machine = request.machine
    total = machine.accelerator.total_bytes
    for one in facts.engine:
        if one.tp > machine.count or machine.count % one.tp:
            continue
        rising = memory_shares(one, samples * one.tp, request.seq_len, total)
        for sleep in (False, True) if rising else ():
            yield [RolloutChoice(engine, one.tp, share, sleep) for share in rising]


def smallest_engine_for_step(request: PlanRequest, facts: ModelFacts, samples: int) -> RolloutChoice | None:
    """The smallest colocated engine with sleep mode whose cache holds all of a step's completions."""
    total = request.machine.accelerator.total_bytes
    found = []
    for one in facts.engine:
        if one.tp > request.machine.count or request.machine.count % one.tp:
            continue
        sequences = samples * one.tp
        for share in memory_shares(one, sequences, request.seq_len, total)[-1:]:
            rollout = RolloutChoice("colocate", one.tp, share, sleep=True)
            if engine_memory(one, rollout, sequences, total).cache >= sequences * request.seq_len * one.cache_of_token:
                found.append(rollout)
    return min(found, key=lambda one: (one.share, one.tp), default=None)


def smallest_rollout(request: PlanRequest, facts: ModelFacts, engine: Where, gpus: int, samples: int) -> RolloutChoice:
    """The choice of :func:`rollout_choices` with the least memory beside the trainer."""
    if engine not in ("colocate", "server"):
        return RolloutChoice(engine)
    found = [rising[0] for rising in rollout_choices(request, facts, engine, gpus, samples)]
    if not found:
        return RolloutChoice(engine, gpus=gpus)
    return min(found, key=lambda one: (not one.sleep, one.share, one.tp))
