"""The program: a model built from its config, trained by transformers' Trainer on the same batch at every step.

It is a plain training script that also runs without gonogo, given enough memory for the model.
"""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass, field
from typing import Any

import torch

from gonogo.finding import translated
from gonogo.virtual.synthetic import notes
from gonogo.virtual.synthetic.batch import build_batch
from gonogo.virtual.synthetic.model import make_model, read_model


@dataclass(frozen=True)
class ProgramOptions:
    """What to train, and how; see ``gonogo rehearse --help``."""

    model: str
    deepspeed: str | None = None
    seq_len: int = 512
    micro_batch: int = 1
    steps: int = 2
    gradient_checkpointing: bool = False
    arguments: dict[str, Any] = field(default_factory=dict)
    """TrainingArguments that differ from what the other options and the DeepSpeed config say."""


class RepeatedSamples(torch.utils.data.Dataset[int]):
    """A dataset of ``count`` identical samples; the batch itself is created by the collator."""

    def __init__(self, length: int) -> None:
        self._length = length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> int:
        return index


def train(options: ProgramOptions) -> None:
    """Create the model and its batch, and train."""
    found = read_model(options.model)
    batch = build_batch(found, options.seq_len, options.micro_batch)
    arguments = training_arguments(options)  # before the model, since zero.Init reads the DeepSpeed config
    model = make_model(found, arguments)
    samples = options.steps * arguments.train_batch_size * arguments.gradient_accumulation_steps * arguments.world_size
    trainer = trainer_class()(
        model=model,
        args=arguments,
        train_dataset=RepeatedSamples(samples),
        data_collator=lambda _: {name: _clone_tensors(value) for name, value in batch.items()},
    )
    trainer.train()


def _clone_tensors(value: Any) -> Any:
    if isinstance(value, list):
        return [_clone_tensors(item) for item in value]
    return value.clone() if isinstance(value, torch.Tensor) else value


def training_arguments(options: ProgramOptions) -> Any:
    """TrainingArguments that agree with the DeepSpeed config, with defaults for what it leaves open."""
    from transformers import TrainingArguments

    config: dict[str, Any] = {}
    if options.deepspeed is not None:
        with open(options.deepspeed, encoding="utf-8") as file:
            config = json.load(file)
    settings: dict[str, Any] = {
        "output_dir": tempfile.gettempdir(),
        "deepspeed": options.deepspeed,
        "max_steps": options.steps,
        "per_device_train_batch_size": options.micro_batch,
        "gradient_checkpointing": options.gradient_checkpointing,
        "fp16": _is_enabled(config, "fp16"),
        "bf16": not _is_enabled(config, "fp16") and (_is_enabled(config, "bf16") or _should_choose_bf16(config)),
        "use_cpu": not _has_accelerator(),
        "report_to": [],
        "save_strategy": "no",
        "remove_unused_columns": False,
        "disable_tqdm": True,
        "ddp_find_unused_parameters": True,
    }
    if options.gradient_checkpointing:
        settings["gradient_checkpointing_kwargs"] = {"use_reentrant": False}
    _copy_number(settings, "gradient_accumulation_steps", config.get("gradient_accumulation_steps"))
    _copy_number(settings, "max_grad_norm", config.get("gradient_clipping"))
    optimizer = _config_section(_config_section(config, "optimizer"), "params")
    for name, key in (("learning_rate", "lr"), ("weight_decay", "weight_decay"), ("adam_epsilon", "eps")):
        _copy_number(settings, name, optimizer.get(key))
    betas = optimizer.get("betas")
    if isinstance(betas, list) and len(betas) == 2:
        settings["adam_beta1"], settings["adam_beta2"] = betas
    scheduler = _config_section(_config_section(config, "scheduler"), "params")
    _copy_number(settings, "warmup_steps", scheduler.get("warmup_num_steps"))
    if scheduler.get("warmup_max_lr") not in (None, "auto"):
        settings["learning_rate"] = scheduler["warmup_max_lr"]
    _copy_number(settings, "max_steps", scheduler.get("total_num_steps"))
    return TrainingArguments(**settings | options.arguments)


def _has_accelerator() -> bool:
    npu = getattr(torch, "npu", None)
    return torch.cuda.is_available() or (npu is not None and bool(npu.is_available()))


def _config_section(config: dict[str, Any], name: str) -> dict[str, Any]:
    part = config.get(name)
    return part if isinstance(part, dict) else {}


def _is_enabled(config: dict[str, Any], name: str) -> bool:
    return _config_section(config, name).get("enabled") is True


def _should_choose_bf16(config: dict[str, Any]) -> bool:
    """True if the config leaves the dtype open: then bf16 is used, as in nearly all fine-tuning."""
    return not config or _config_section(config, "bf16").get("enabled") == "auto"


def _copy_number(settings: dict[str, Any], name: str, value: Any) -> None:
    if isinstance(value, int | float) and not isinstance(value, bool):
        settings[name] = value


def trainer_class() -> Any:
    """``Trainer`` with a loss for models that compute none themselves."""
    from transformers import Trainer

    class SyntheticTrainer(Trainer):  # type: ignore[misc]
        def compute_loss(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
            # DeepSpeed's Ulysses shifts labels before it splits them.
            if {"labels", "shift_labels", "return_loss"} & set(inputs):
                return super().compute_loss(model, inputs, *args, **kwargs)
            notes.record_assumption(translated("the model computes no loss: the mean of its first output was used"))
            outputs = model(**inputs)
            first = outputs[0] if not isinstance(outputs, torch.Tensor) else outputs
            return first.float().mean()

    return SyntheticTrainer
