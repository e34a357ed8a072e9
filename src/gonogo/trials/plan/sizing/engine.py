"""The engine beside one strategy: what it takes of a GPU, whether it starts there, and how long it generates."""

from __future__ import annotations

from gonogo.trials.plan.request import PlanRequest
from gonogo.trials.plan.roofline import LINK_SHARE, NETWORK_BYTES
from gonogo.trials.plan.sizing.engine_layouts import served
from gonogo.trials.plan.strategy import Strategy
from gonogo.trials.plan.task.generation import generation_seconds, sync_seconds
from gonogo.trials.plan.task.rollout import EngineMemory, memory_of
from gonogo.virtual.measuring.jobs import EngineFacts, Facts


def facts_of(facts: Facts, strategy: Strategy) -> EngineFacts | None:
    """The engine's figures, divided as the strategy does; None where no engine runs."""
    if strategy.rollout.engine not in ("colocate", "server"):
        return None
    return next((one for one in facts.engine if one.tp == strategy.rollout.tp), None)


def beside(request: PlanRequest, facts: Facts, strategy: Strategy) -> EngineMemory | None:
    """What the engine takes of the trainer's GPUs; None where none runs there."""
    known = facts_of(facts, strategy)
    if known is None or strategy.rollout.engine != "colocate":
        return None
    # TRL's max_num_seqs: what the ranks of one engine train in a step.
    sequences = strategy.micro_batch * strategy.accumulation * known.tp
    return memory_of(known, strategy.rollout, sequences, request.machine.accelerator.total_bytes)


def margin(request: PlanRequest, facts: Facts, strategy: Strategy, held: float) -> float | None:
    """Bytes by which the engine surely starts, beside ``held`` of the trainer; negative where it may not."""
    engine, known = beside(request, facts, strategy), facts_of(facts, strategy)
    if engine is None or known is None:
        return None
    accelerator = request.machine.accelerator
    longest = request.seq_len * known.cache_of_token
    return engine.margin(longest, held, accelerator.total_bytes, accelerator.allowance_bytes)


def seconds(request: PlanRequest, facts: Facts, strategy: Strategy) -> float:
    """Of generating a step's completions, and of bringing the weights there. ``request``: the trainer's GPUs."""
    known, task = facts_of(facts, strategy), request.task
    speed = request.machine.accelerator.speed
    if known is None or task is None or speed is None:
        return 0.0
    rollout, samples = strategy.rollout, strategy.micro_batch * strategy.accumulation
    if rollout.engine == "server":
        cache, engines = served(request, known).cache, rollout.gpus // known.tp
        completions = -(-samples * request.world_size // engines)
        over_network = request.machine.nodes > 1
        link = (request.network_bytes or NETWORK_BYTES) * LINK_SHARE
        bringing = known.weights * known.tp / link if over_network else sync_seconds(known, speed, server=True)
    else:
        engine = beside(request, facts, strategy)
        cache, completions = 0.0 if engine is None else engine.cache, samples * known.tp
        bringing = sync_seconds(known, speed, server=False)
    return bringing + generation_seconds(
        facts, known, speed, cache=cache, completions=completions, generations=task.generations,
        prompt=task.prompt_len, completion=task.completion_len,
    )  # fmt: skip
