"""Defaults of training arguments, by framework."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

TRANSFORMERS_DEFAULTS: Mapping[str, Any] = {
    "per_device_train_batch_size": 8,
    "gradient_accumulation_steps": 1,
    "max_grad_norm": 1.0,
    "learning_rate": 5e-5,
    "adam_beta1": 0.9,
    "adam_beta2": 0.999,
    "adam_epsilon": 1e-8,
    "weight_decay": 0.0,
    "warmup_steps": 0,
    "warmup_ratio": 0.0,
    "max_steps": -1,
    "fp16": False,
    "bf16": False,
    "fp16_full_eval": False,
    "bf16_full_eval": False,
    "save_on_each_node": False,
    "auto_find_batch_size": False,
}
"""Defaults of transformers' TrainingArguments."""

# Changes by frameworks' subclasses of TrainingArguments; None: depends on the version or the run.
_OTHER_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "ms-swift": {
        "per_device_train_batch_size": 1,
        "weight_decay": 0.1,
        "adam_beta2": 0.95,
        **dict.fromkeys(("gradient_accumulation_steps", "learning_rate", "fp16", "bf16")),
    },
    # They differ between TRL's trainers.
    "trl": dict.fromkeys(set(TRANSFORMERS_DEFAULTS) - {"adam_beta1", "adam_epsilon", "fp16"}),
    "axolotl": dict.fromkeys(TRANSFORMERS_DEFAULTS),
}


def training_defaults(framework: str | None = None) -> Mapping[str, Any]:
    """The defaults of a framework's training arguments, by default transformers'; a value is None if it varies."""
    return {**TRANSFORMERS_DEFAULTS, **_OTHER_DEFAULTS.get(framework or "", {})}
