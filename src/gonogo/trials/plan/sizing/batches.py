"""Batches of a task: what a step has in all, and how few micro-batches of it show what it takes."""

from __future__ import annotations

from math import lcm

from gonogo.finding import translated
from gonogo.finding.errors import UserError
from gonogo.trials.plan.request import PlanRequest
from gonogo.trials.plan.strategy import Strategy

_USUAL = 64


def global_batch(request: PlanRequest) -> int:
    """Samples of an optimizer step: as asked, else the least number from 64 on that GPUs and generations divide."""
    if request.global_batch is not None:
        return request.global_batch
    of = lcm(request.world_size, generations(request))
    return -(-_USUAL // of) * of


def generations(request: PlanRequest) -> int:
    """Completions of a prompt, which all have to be in one step."""
    return 1 if request.task is None else request.task.generations


def min_micro_batch(request: PlanRequest) -> int:
    """KTO compares each sample with its neighbour's completion: TRL takes no micro-batch of one."""
    return 2 if request.task is not None and request.task.task == "kto" else 1


def measured_accumulation(request: PlanRequest, strategy: Strategy) -> int:
    """Micro-batches that a rehearsal's step has: the second shows what any later one would.

    All of them, where TRL puts a step's completions through a model at once: a reward model, or the trained one that
    generates by itself (trl/trainer/grpo_trainer.py, ``_calculate_rewards`` and ``_generate``).
    """
    task = request.task
    if task is not None and task.kind.rolls_out and (task.beside is not None or strategy.rollout.engine == "none"):
        return strategy.accumulation
    alone = strategy.micro_batch * request.world_size == 1 and generations(request) > 1
    return 2 if alone else min(strategy.accumulation, 2)


def measured_generations(samples_per_step: int) -> int:
    """Completions of a prompt in a rehearsal's step of so many samples: the fewest that make it up.

    How many of them have one prompt decides nothing that is measured: each is trained, and scored, by itself.
    """
    return next(count for count in range(2, samples_per_step + 1) if samples_per_step % count == 0)


def check_completions(request: PlanRequest) -> None:
    """Raise UserError where a step can't hold all completions of each of its prompts."""
    batch, of = request.global_batch, generations(request)
    if batch is None or batch % of == 0:
        return
    whole = lcm(of, request.world_size)
    raise UserError(
        translated(
            "--global-batch {batch} counts completions and must contain all {of} of each prompt; use {near}"
        ).format(batch=batch, of=of, near=-(-batch // whole) * whole)
    )
