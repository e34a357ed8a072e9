"""The program whose short rehearsals are measured: the synthetic program with a choice of what is tuned."""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import Any

import torch

from gonogo.virtual.measuring.tuning import freeze_untuned, quantize_to_4bit
from gonogo.virtual.synthetic.batch import build_batch
from gonogo.virtual.synthetic.model import load_sharded_model, make_model, read_model
from gonogo.virtual.synthetic.program import ProgramOptions, RepeatedSamples, trainer_class, training_arguments
from gonogo.virtual.tracing.work import counting_work


def parse(arguments: list[str]) -> argparse.Namespace:
    """Parse the program's command line."""
    parser = argparse.ArgumentParser(prog="gonogo.virtual.measuring.program")
    parser.add_argument("--model", required=True)
    how = parser.add_mutually_exclusive_group(required=True)
    how.add_argument("--deepspeed")
    how.add_argument("--arguments", help="a JSON file of TrainingArguments")
    parser.add_argument("--environment", default="{}", help="variables as JSON")
    parser.add_argument("--distributed", default="{}", help="the sizes of transformers' DistributedConfig as JSON")
    parser.add_argument("--seq-len", type=int, required=True)
    parser.add_argument("--micro-batch", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--gradient-checkpointing", action="store_true")
    parser.add_argument("--tune", default="full")
    parser.add_argument("--lora-rank", type=int, default=16)
    parser.add_argument("--attention", default="sdpa")
    about = parser.add_argument_group("what the model's description is to say as well")
    about.add_argument("--task", default="sft")
    about.add_argument("--engine", action="store_true")
    about.add_argument("--beside")
    return parser.parse_args(arguments)


def _read_json(path: str) -> dict[str, Any]:
    with open(path, encoding="utf-8") as file:
        found: dict[str, Any] = json.load(file)
    return found


def main(arguments: list[str]) -> None:
    """Create the model and its batch, and train for the requested steps."""
    given = parse(arguments)
    of_file = _read_json(given.arguments) if given.arguments else {}
    os.environ.update(json.loads(given.environment))
    options = ProgramOptions(
        model=given.model,
        deepspeed=given.deepspeed,
        seq_len=given.seq_len,
        micro_batch=given.micro_batch,
        steps=given.steps,
        gradient_checkpointing=given.gradient_checkpointing,
        arguments=of_file,
    )
    found = read_model(options.model)
    found.config._attn_implementation = given.attention
    batch = build_batch(found, options.seq_len, options.micro_batch)
    if "PARALLELISM_CONFIG_SP_SIZE" in os.environ:  # which DeepSpeed's Ulysses reads from each batch
        batch["position_ids"] = torch.arange(options.seq_len).expand(options.micro_batch, -1).contiguous()
    settings = training_arguments(options)
    sizes = json.loads(given.distributed)
    model: Any
    if sizes:
        model = load_sharded_model(found, sizes)
    else:
        model = quantize_to_4bit(found, settings) if given.tune == "qlora" else make_model(found, settings)
    model = freeze_untuned(model, given.tune, given.lora_rank)
    per_step = settings.train_batch_size * settings.gradient_accumulation_steps * settings.world_size
    trainer = trainer_class()(
        model=model,
        args=settings,
        train_dataset=RepeatedSamples(options.steps * per_step),
        data_collator=lambda _: {name: value.clone() for name, value in batch.items()},
    )
    with counting_work():
        trainer.train()


if __name__ == "__main__":
    main(sys.argv[1:])
