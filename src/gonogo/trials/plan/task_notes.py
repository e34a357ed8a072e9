"""A report's notes on a task: why a strategy generates the way it does, its reference, and what was not rehearsed."""

from __future__ import annotations

from collections.abc import Iterator

from gonogo.finding import Skipped, Text, translated
from gonogo.trials.plan.choice import Choice
from gonogo.trials.plan.request import PlanRequest

_GIB = 1 << 30
_REFERENCES = {
    "model": translated("A second, frozen copy of the model computes the reference log-probabilities."),
    "adapter": translated("The reference is the same model without its adapters: it takes no extra memory."),
    "precomputed": translated(
        "The reference log-probabilities are computed once before training: no second model is held during "
        "training, and this pass over the data is not included in the speed."
    ),
}
_COLOCATED = translated(
    "vLLM runs in the trainer's processes with {share:.0%} of each GPU ({size:.0f} GiB) and tensor parallel size {tp}."
)
_SLEEP_MODE = translated("It releases its weights and cache while the trainer works (sleep mode).")
_ENGINE_STAYS_LOADED = translated("There is enough memory to keep it loaded while the trainer works.")
_SERVER_MODE = translated(
    "vLLM runs as a server on {gpus} GPU(s) with tensor parallel size {tp}; the other {left} train, and wait "
    "while it generates."
)
_GENERATION_SHARE = translated("Generation takes an estimated {share:.0%} of a step.")
_GENERATES_WITH_TRANSFORMERS = translated(
    "The model itself generates through transformers; Python overhead between tokens is not included in the speed."
)


def task_notes(choice: Choice, request: PlanRequest) -> Iterator[Text]:
    """Sentences about the reference and about generation; none for plain fine-tuning."""
    strategy, rollout = choice.strategy, choice.strategy.rollout
    if strategy.reference:
        yield _REFERENCES[strategy.reference]
    total = request.machine.accelerator.total_bytes
    if rollout.engine == "colocate":
        yield _COLOCATED.format(share=rollout.share, size=rollout.share * total / _GIB, tp=rollout.tp)
        yield _SLEEP_MODE if rollout.sleep else _ENGINE_STAYS_LOADED
    elif rollout.engine == "server":
        left = request.world_size - rollout.gpus
        yield _SERVER_MODE.format(gpus=rollout.gpus, tp=rollout.tp, left=left)
    elif rollout.engine == "none" or (request.task is not None and request.task.kind.generates):
        yield _GENERATES_WITH_TRANSFORMERS
    if choice.time.generation and choice.time.total:
        yield _GENERATION_SHARE.format(share=choice.time.generation / choice.time.total)


def unrehearsed_parts(request: PlanRequest) -> list[Skipped]:
    """Parts of a task that no rehearsal covers."""
    task = request.task
    if task is None:
        return []
    skipped = [
        Skipped(
            translated("ms-swift's launch"),
            translated("only TRL was rehearsed: rehearse launch_swift.sh too before you train with it"),
        )
    ]
    if not task.kind.rolls_out or task.engine == "none":
        return skipped
    skipped.append(
        Skipped(
            translated("generation speed"),
            translated(
                "estimated from what vLLM has to read per token, with all completions at the length limit; "
                "sampling, scheduling and early stopping are not included"
            ),
        )
    )
    if "server" in task.engines:
        skipped.append(
            Skipped(
                translated("the rollout server's GPUs"),
                translated(
                    "whether the model and the cache fit there is estimated from vLLM's memory use, not rehearsed"
                ),
            )
        )
    return skipped
