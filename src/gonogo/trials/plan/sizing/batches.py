"""Batch sizes of a task: the full step, and the few micro-batches that a rehearsal needs to measure it."""

from __future__ import annotations

from math import lcm

from gonogo.finding import UserError, translated
from gonogo.trials.plan.request import PlanRequest
from gonogo.trials.plan.strategy import Strategy

_DEFAULT_GLOBAL_BATCH_SIZE = 64


def global_batch(request: PlanRequest) -> int:
    """Samples per optimizer step: as requested, else the first number from 64 up that GPUs and generations divide."""
    if request.global_batch is not None:
        return request.global_batch
    of = lcm(request.world_size, generations(request))
    return -(-_DEFAULT_GLOBAL_BATCH_SIZE // of) * of


def generations(request: PlanRequest) -> int:
    """Completions per prompt, all of which have to be in the same step."""
    return 1 if request.task is None else request.task.generations


def min_micro_batch(request: PlanRequest) -> int:
    """The minimum micro-batch: 2 for KTO, because TRL pairs each prompt with a neighbour's completion."""
    return 2 if request.task is not None and request.task.task == "kto" else 1


def measured_accumulation(request: PlanRequest, strategy: Strategy) -> int:
    """Micro-batches per step in a rehearsal: two, because later ones are like the second.

    All of them if TRL passes a step's completions through a model at once: a reward model, or the trained model if it
    generates itself (trl/trainer/grpo_trainer.py, ``_calculate_rewards`` and ``_generate``).
    """
    task = request.task
    if task is not None and task.kind.rolls_out and (task.beside is not None or strategy.rollout.engine == "none"):
        return strategy.accumulation
    alone = strategy.micro_batch * request.world_size == 1 and generations(request) > 1
    return 2 if alone else min(strategy.accumulation, 2)


def measured_generations(samples_per_step: int) -> int:
    """Completions per prompt in a rehearsed step of ``samples_per_step`` samples: its smallest divisor above 1.

    The number doesn't affect the measurement, because completions are trained and scored independently.
    """
    return next(count for count in range(2, samples_per_step + 1) if samples_per_step % count == 0)


def check_completions(request: PlanRequest) -> None:
    """Raise UserError if a step can't contain all completions of each of its prompts."""
    batch, of = request.global_batch, generations(request)
    if batch is None or batch % of == 0:
        return
    whole = lcm(of, request.world_size)
    raise UserError(
        translated(
            "--global-batch {batch} counts completions and must include all {of} completions of each prompt; use {near}"
        ).format(batch=batch, of=of, near=-(-batch // whole) * whole)
    )
