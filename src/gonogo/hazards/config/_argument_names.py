"""Which transformers release knows which argument (data/training_arguments.json), and what replaced old names."""

from functools import cache
from typing import Any

from gonogo.evidence.environment.environment import Environment
from gonogo.evidence.tables import TABLES

RENAMED_ARGUMENTS = {
    "evaluation_strategy": "eval_strategy",
    "no_cuda": "use_cpu",
    "per_gpu_train_batch_size": "per_device_train_batch_size",
    "per_gpu_eval_batch_size": "per_device_eval_batch_size",
    "xpu_backend": "ddp_backend",
    "push_to_hub_token": "hub_token",
    "push_to_hub_model_id": "hub_model_id",
    "torchdynamo": "torch_compile_backend",
    "tokenizer": "processing_class",
    "activation_checkpointing": "gradient_checkpointing",
    "activation_checkpointing_kwargs": "gradient_checkpointing_kwargs",
}
"""The other name of an argument that takes the same values."""

ARGUMENT_REPLACEMENTS = {
    "warmup_ratio": "warmup_steps=0.1",
    "logging_dir": "TENSORBOARD_LOGGING_DIR=...",
    "group_by_length": 'train_sampling_strategy="group_by_length"',
    "adafactor": 'optim="adafactor"',
    "fp16_backend": "fp16=True",
    "half_precision_backend": "fp16=True",
    "sharded_ddp": "fsdp=...",
    "dispatch_batches": "accelerator_config={'dispatch_batches': ...}",
    "split_batches": "accelerator_config={'split_batches': ...}",
    "include_inputs_for_metrics": "include_for_metrics=['inputs']",
    "fsdp_min_num_params": "fsdp_config={'min_num_params': ...}",
    "fsdp_transformer_layer_cls_to_wrap": "fsdp_config={'transformer_layer_cls_to_wrap': ...}",
    "tpu_metrics_debug": 'debug="tpu_metrics_debug"',
    "push_to_hub_organization": "hub_model_id=organization/name",
    "tp_size": "parallelism_config=...",
}
"""The replacement of a removed argument, if it is more than a renaming."""

_DROPPABLE_ARGUMENTS = frozenset(
    {"overwrite_output_dir", "save_safetensors", "use_mps_device", "use_ipex", "ray_scope"}
)
"""Removed without a replacement: their effect is now the default, or no longer exists."""


@cache
def _load_table() -> dict[str, Any]:
    import json

    table: dict[str, Any] = json.loads((TABLES / "training_arguments.json").read_bytes())
    return table


def known_argument_names(kind: str = "TrainingArguments") -> frozenset[str]:
    """Every name that any release of the table has."""
    return frozenset(_load_table()[kind])


def first_and_last_release() -> tuple[str, str]:
    """The oldest and the newest release in the table."""
    known = _load_table()["releases"]
    return known[0], known[-1]


def excluding_release(kind: str, name: str, environment: Environment) -> tuple[str, str] | None:
    """The release that makes the argument missing in this environment: ``("until", "5.0")``, ``("since", …)``."""
    entry = _load_table()[kind].get(name)
    if entry is None:
        return None
    if (until := entry.get("until")) and environment.within("transformers", f">={until}"):
        return "until", until
    if (since := entry.get("since")) and environment.within("transformers", f"<{since}"):
        return "since", since
    return None


def possible_removal_release(kind: str, name: str, environment: Environment) -> str | None:
    """The release that removed the argument, if the project's files allow both that release and older ones."""
    until = (_load_table()[kind].get(name) or {}).get("until")
    package = environment.packages.get("transformers")
    if not until or package is None or package.address or package.version is not None:
        return None
    older, newer = (environment.within("transformers", f"{sign}{until}") for sign in ("<", ">="))
    return until if older is None and newer is None else None


def renamed_argument(kind: str, name: str, environment: Environment) -> str | None:
    """The equivalent name that this environment's transformers knows, or None."""
    candidates = (
        [RENAMED_ARGUMENTS[name]]
        if name in RENAMED_ARGUMENTS
        else [old for old, new in RENAMED_ARGUMENTS.items() if new == name]
    )
    return next(
        (one for one in candidates if one in _load_table()[kind] and excluding_release(kind, one, environment) is None),
        None,
    )


def is_droppable_argument(name: str) -> bool:
    """Whether a removed argument can simply be left out."""
    return name in _DROPPABLE_ARGUMENTS
