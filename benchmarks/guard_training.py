"""The training that `benchmarks/guard.py` measures: ``guard_training.py MODEL STEPS DEVICE FOLDER``, one rank of it."""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments

MODEL, STEPS, DEVICE, FOLDER = sys.argv[1], int(sys.argv[2]), sys.argv[3], Path(sys.argv[4])
LAYERS, WIDTH, LENGTH = {"small": (2, 256, 64), "mid": (8, 512, 128), "large": (16, 2048, 1024)}[MODEL]
BATCH = 2
PARTS = ("the rank", "collectives", "memory", "the loss", "steps", "the watching thread", "stalls", "the model", "data")


class Tokens(Dataset):  # type: ignore[type-arg]
    """Random token ids, the same each time."""

    def __len__(self) -> int:
        return 100_000

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        ids = torch.randint(0, 1000, (LENGTH,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": ids, "labels": ids}


class Measured(TrainerCallback):
    """When each step ended, by the clock and by the processors.

    With ``TURNS=1`` the guard's parts are switched off for every other step.
    """

    def __init__(self) -> None:
        self.marks: list[tuple[float, float]] = []

    def on_step_end(self, *arguments: Any, **named: Any) -> None:
        if DEVICE == "cuda":
            torch.cuda.synchronize()
        self.marks.append((time.perf_counter(), time.process_time()))
        if "TURNS" in os.environ:
            from gonogo.guard.common import faults

            if len(self.marks) % 2:
                faults.off.update(PARTS)
            else:
                faults.off.clear()


torch.manual_seed(5)
config = LlamaConfig(
    vocab_size=1000,
    hidden_size=WIDTH,
    intermediate_size=4 * WIDTH,
    num_hidden_layers=LAYERS,
    num_attention_heads=8,
    num_key_value_heads=8,
    max_position_embeddings=LENGTH,
)
arguments = TrainingArguments(
    output_dir=str(FOLDER / "out"),
    per_device_train_batch_size=BATCH,
    max_steps=STEPS,
    report_to=[],
    logging_strategy="no",
    save_strategy="no",
    disable_tqdm=True,
    use_cpu=DEVICE == "cpu",
    bf16=DEVICE == "cuda",
    ddp_backend="gloo" if DEVICE == "cpu" else "nccl",
    deepspeed={
        "train_micro_batch_size_per_gpu": "auto",
        "train_batch_size": "auto",
        "gradient_accumulation_steps": "auto",
        "optimizer": {"type": "AdamW", "params": {"lr": "auto", "torch_adam": True}},
        "bf16": {"enabled": "auto"},
        "zero_optimization": {"stage": 2},
    },
)
measured = Measured()
Trainer(LlamaForCausalLM(config), arguments, train_dataset=Tokens(), callbacks=[measured]).train()
pairs = list(zip(measured.marks, measured.marks[1:], strict=False))
(FOLDER / f"measured-{os.environ.get('RANK', '0')}.json").write_text(
    json.dumps(
        {
            "seconds": [after[0] - before[0] for before, after in pairs],
            "processor": [after[1] - before[1] for before, after in pairs],
            "bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        }
    )
)
