"""Micro-batch, gradient accumulation and number of ranks of a run, and where they are set."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from gonogo.evidence.config.training_defaults import training_defaults
from gonogo.evidence.field import Field, whole_number

if TYPE_CHECKING:
    from gonogo.evidence.run import Run

MICRO_BATCH, ACCUMULATION = "per_device_train_batch_size", "gradient_accumulation_steps"
KEYS = {MICRO_BATCH: "train_micro_batch_size_per_gpu", ACCUMULATION: ACCUMULATION}
"""DeepSpeed's names for the arguments."""


class Batch(msgspec.Struct, frozen=True):
    """The batch of an optimizer step; ``world`` is None if the number of ranks is unknown."""

    micro_batch: int
    accumulation: int
    world: int | None

    @property
    def samples(self) -> int:
        """Samples of a step, over all ranks; if their number is unknown, those of a single rank."""
        return self.micro_batch * self.accumulation * (self.world or 1)


def read_batch(run: Run) -> Batch | None:
    """The batch that the run's files set; None if the micro-batch is unknown."""
    micro_batch, accumulation = read_size_setting(run, MICRO_BATCH), read_size_setting(run, ACCUMULATION)
    if micro_batch is None:
        return None
    return Batch(micro_batch, accumulation or 1, run.world_size)


def read_size_setting(run: Run, argument: str) -> int | None:
    """The size that the arguments, DeepSpeed's config or the framework's defaults set."""
    field = setting_field(run, argument)
    if field is not None:
        return whole_number(field)
    default = training_defaults(run.framework).get(argument)
    return default if isinstance(default, int) and accepts_training_arguments(run) else None


def setting_field(run: Run, argument: str) -> Field | None:
    """The field that sets it: an argument, else a number in DeepSpeed's config; None if neither does."""
    field = run.arguments.get(argument)
    if field.known:
        return field
    if run.config is not None and not run.config.is_auto(KEYS[argument]):
        configured = run.config.get(KEYS[argument])
        if configured.known:
            return configured
    return None


def accepts_training_arguments(run: Run) -> bool:
    """Whether the program accepts transformers' TrainingArguments, as frameworks and Trainer scripts do."""
    from gonogo.evidence.training_arguments import ARGUMENT_CLASSES

    if run.framework is not None:
        return True
    return any(
        script.imports("transformers") and any(True for _ in script.calls(*ARGUMENT_CLASSES, "*HfArgumentParser"))
        for script in run.scripts
    )
