"""Computes how many completions a GRPO run generates at a time, from its launch, config and script."""

from __future__ import annotations

import math

import msgspec

from gonogo.hazards.rule import Certainty, Field, Launch, Run, Span, Text, translated, whole_number

_CONFIGS = ("trl.GRPOConfig", "trl.RLOOConfig")
_TRAINERS = ("trl.GRPOTrainer", "trl.RLOOTrainer")
_COMMANDS = ("grpo", "rloo", "trl.scripts.grpo", "trl.scripts.rloo")
_CONFIG_CHECKS_SINCE = "0.18"
"""The release of trl whose config refuses the batch itself; before it, only the trainer does."""


class GenerationBatch(msgspec.Struct, frozen=True):
    """A batch of completions, and the generations per prompt that must divide it."""

    completions: int
    generations: int
    how: Text
    spans: tuple[Span | None, ...]
    certainty: Certainty


def generation_batch(launch: Launch, run: Run) -> GenerationBatch | None:
    """The batch of a GRPO or RLOO run; None for other runs, or if a number is unknown."""
    known = is_grpo(launch, run)
    world = run.world_size
    checks = _rejects_indivisible_batch(launch, run) if known else False
    if checks is False or world is None:
        return None
    get = run.arguments.get
    swift = run.framework == "ms-swift"
    generations = _number_or_default(get("num_generations"), 8)
    each = _number_or_default(get("per_device_train_batch_size"), None if swift else 8)
    if generations is None or each is None or generations < 2:
        return None
    certain = Certainty.CERTAIN if checks else Certainty.LIKELY
    given = get("generation_batch_size")
    steps_given, accumulation = get("steps_per_generation"), get("gradient_accumulation_steps")
    default = math.ceil(16 / (each * world)) if swift else 1
    steps = _number_or_default(steps_given, _number_or_default(accumulation, default))
    spans = (get("num_generations").span(), get("per_device_train_batch_size").span())
    if (whole := whole_number(given)) is not None:
        how = translated("generation_batch_size")
        return GenerationBatch(whole, generations, how, (given.span(), *spans), certain)
    if steps is None or not given.absent:
        return None
    all_given = (get("num_generations"), get("per_device_train_batch_size"), accumulation)
    sure = all(one.known for one in all_given[:2])
    how = Text(
        f"{world} processes × per-device batch {each} × {steps} steps",
        f"{world} 个进程 × 每设备批次 {each} × {steps} 步",
    )
    certainty = certain if sure else Certainty.LIKELY
    batch = GenerationBatch(world * each * steps, generations, how, (*spans, accumulation.span()), certainty)
    if batch.completions % generations == 0 and run.environment.within("trl", "<0.17"):
        how = Text(f"{world} processes × per-device batch {each}", f"{world} 个进程 × 每设备批次 {each}")
        return GenerationBatch(world * each, generations, how, spans, Certainty.LIKELY)
    return batch


def _rejects_indivisible_batch(launch: Launch, run: Run) -> bool | None:
    """Whether the trainer rejects a batch that generations don't divide; None for a trainer of the project itself.

    None if the trainer is not trl's as far as the code shows, and trl's release is unknown.
    """
    if run.framework == "ms-swift" or (launch.program.string or "") in _COMMANDS:
        return True
    if any(next(script.calls(*_TRAINERS), None) is not None for script in run.scripts):
        return True
    if run.environment.within("trl", f">={_CONFIG_CHECKS_SINCE}"):
        return True
    return False if run.environment.within("trl", f"<{_CONFIG_CHECKS_SINCE}") else None


def _number_or_default(field: Field, default: int | None) -> int | None:
    return default if field.absent else whole_number(field)


def is_grpo(launch: Launch, run: Run) -> bool:
    """Whether the launch trains with groups of generations per prompt: GRPO or RLOO."""
    if run.framework == "ms-swift":
        return str(run.arguments.get("rlhf_type").get("")) == "grpo"
    program = launch.program.string or ""
    if program in _COMMANDS and (run.framework == "trl" or program.startswith("trl.")):
        return True
    return any(next(script.calls(*_CONFIGS), None) is not None for script in run.scripts)
