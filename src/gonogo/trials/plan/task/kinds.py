"""The training methods of ``--task``, and what each needs besides the trained model."""

from __future__ import annotations

from typing import Literal

import msgspec

Task = Literal["sft", "dpo", "kto", "rm", "grpo", "rloo", "gkd"]
TASKS: tuple[Task, ...] = ("sft", "dpo", "kto", "rm", "grpo", "rloo", "gkd")
Reference = Literal["", "model", "adapter", "precomputed"]
"""The source of the reference's log-probabilities, if the task needs any.

A second model, the trained model with its adapters disabled, or a pass over the data before training, as with TRL's
``precompute_ref_log_probs``.
"""


class TaskKind(msgspec.Struct, frozen=True):
    """A task. ``beta``: TRL's default weight of the KL penalty against the reference model, 0 if there is none."""

    rolls_out: bool = False
    """Whether an engine generates completions, which are then rewarded."""
    generates: bool = False
    """Whether the trained model itself generates in some of the steps, with transformers' ``generate``."""
    sequences: int = 1
    """Sequences trained per sample: a preference pair has two."""
    beta: float = 0.0
    precomputes: bool = False
    """Whether TRL can precompute the reference's log-probabilities."""


KINDS: dict[Task, TaskKind] = {
    "sft": TaskKind(),
    "dpo": TaskKind(sequences=2, beta=0.1, precomputes=True),
    "kto": TaskKind(beta=0.1, precomputes=True),
    "rm": TaskKind(sequences=2),
    "grpo": TaskKind(rolls_out=True),
    "rloo": TaskKind(rolls_out=True, beta=0.05),
    "gkd": TaskKind(generates=True),
}
ON_POLICY_SHARE = 0.5
"""TRL's default ``lmbda`` of GKD: the fraction of steps in which the student generates its training data."""
