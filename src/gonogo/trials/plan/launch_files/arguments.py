"""The arguments of a strategy: transformers' TrainingArguments, and the additional ones of TRL's configs."""

from __future__ import annotations

import json
from typing import Any

from gonogo.trials.plan.request import PlanRequest
from gonogo.trials.plan.strategy import Strategy
from gonogo.trials.plan.task.kinds import ON_POLICY_SHARE

CONFIG = "ds_config.json"
FSDP_CONFIG = "fsdp_config.json"
DISTRIBUTED_CONFIG = "distributed_config.json"
SWIFT_FSDP_CONFIG = "fsdp_config_swift.json"
SWIFT_CONFIG = "ds_config_swift.json"
"""The config without an optimizer: ms-swift inspects the Trainer's, a placeholder if DeepSpeed creates it."""


def learning_rate(request: PlanRequest) -> float:
    """A common starting value: higher for adapters, lower for reinforcement learning."""
    adapts = request.tune in ("lora", "qlora")
    if request.task is None:
        return 1e-4 if adapts else 1e-5
    return 1e-5 if adapts else 1e-6


def training_arguments(strategy: Strategy, request: PlanRequest) -> dict[str, Any]:
    """TrainingArguments that are consistent with the DeepSpeed or FSDP config."""
    native = strategy.family.is_native  # the model itself brings how it is sharded
    fsdp = strategy.family.fsdp and not native
    sharded = {"fsdp": "full_shard auto_wrap", "fsdp_config": FSDP_CONFIG} if fsdp else {"deepspeed": CONFIG}
    arguments: dict[str, Any] = {
        # The Trainer refuses to save the optimizer of a model that transformers sharded as it was loaded.
        **({"save_only_model": True} if native else sharded),
        request.dtype: True,
        "per_device_train_batch_size": strategy.micro_batch,
        "gradient_accumulation_steps": strategy.accumulation,
        "gradient_checkpointing": strategy.checkpointing and not fsdp,  # FSDP's config turns on its own
        "learning_rate": learning_rate(request),
        "adam_beta1": 0.9,
        "adam_beta2": 0.999,
        "adam_epsilon": 1e-8,
        "weight_decay": 0.0,
        "max_grad_norm": 1.0,
        "num_train_epochs": 1,
        "logging_steps": 1,
    }
    if (fsdp or native) and strategy.accumulation > 1:
        # Otherwise each rank keeps whole gradients until the last micro-batch: accelerate's no_sync().
        arguments["accelerator_config"] = {"gradient_accumulation_kwargs": {"sync_each_batch": True}}
    if strategy.checkpointing and not fsdp:
        # PEFT under ZeRO-3 trains correctly only with re-entrant checkpointing (huggingface/trl#2514).
        again = request.task is not None and request.tune == "lora" and strategy.family.zero == 3
        arguments["gradient_checkpointing_kwargs"] = {"use_reentrant": again}
    return arguments


def task_arguments(strategy: Strategy, request: PlanRequest) -> dict[str, Any]:
    """Additional arguments of the task's trainer config; none for plain fine-tuning."""
    task = request.task
    if task is None:
        return {}
    arguments: dict[str, Any] = {}
    if not strategy.checkpointing:
        arguments["gradient_checkpointing"] = "false"  # TRL's default differs
    if task.task in ("dpo", "kto", "rm", "gkd"):
        arguments["max_length"] = request.seq_len
    if task.task == "gkd":
        return arguments | {"max_new_tokens": task.completion_len, "lmbda": ON_POLICY_SHARE}
    if task.kind.beta or task.kind.rolls_out:
        arguments["beta"] = task.beta
    if strategy.reference == "precomputed":
        arguments["precompute_ref_log_probs"] = True
    if task.kind.rolls_out:
        arguments |= {
            "num_generations": task.generations,
            "max_completion_length": task.completion_len,
            "steps_per_generation": strategy.accumulation,
            **_vllm_arguments(strategy, request),
        }
    return arguments


def _vllm_arguments(strategy: Strategy, request: PlanRequest) -> dict[str, Any]:
    rollout = strategy.rollout
    if rollout.engine == "none":
        return {}
    arguments: dict[str, Any] = {"use_vllm": True, "vllm_mode": rollout.engine}
    if rollout.engine == "server":
        return arguments
    arguments |= {
        "vllm_gpu_memory_utilization": rollout.share,
        "vllm_tensor_parallel_size": rollout.tp,
        "vllm_max_model_length": request.seq_len,
    }
    return arguments | ({"vllm_enable_sleep_mode": True} if rollout.sleep else {})


def to_command_line_options(arguments: dict[str, Any]) -> list[str]:
    """The arguments as command-line options; False ones are omitted."""
    found = []
    for name, value in arguments.items():
        if value is False:
            continue
        found += [f"--{name}", json.dumps(value) if isinstance(value, dict) else _format_value(value)]
    return found


def _format_value(value: Any) -> str:
    return "true" if value is True else f"{value:g}" if isinstance(value, float) else str(value)
