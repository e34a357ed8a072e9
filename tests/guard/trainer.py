"""A training with transformers' Trainer and a callback: ``trainer.py FOLDER [DEEPSPEED_CONFIG]``."""

from __future__ import annotations

import json
import sys

import torch
from torch import nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainingArguments

import gonogo

FOLDER = sys.argv[1]
DEEPSPEED = json.loads(sys.argv[2]) if len(sys.argv) > 2 else None


class Squares(Dataset):  # type: ignore[type-arg]
    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"x": torch.full((4,), float(index)), "labels": torch.tensor(float(index))}


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 1)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        answer = self.head(x).squeeze(-1)
        return {"loss": (answer - labels).pow(2).mean(), "logits": answer}


arguments = TrainingArguments(
    output_dir=f"{FOLDER}/out",
    per_device_train_batch_size=2,
    max_steps=4,
    report_to=[],
    save_strategy="no",
    use_cpu=True,
    seed=11,
    deepspeed=DEEPSPEED,
    dataloader_num_workers=1,
    ddp_backend="gloo",
)
callback = gonogo.GonogoCallback(f"{FOLDER}/run" if DEEPSPEED else None, stall_seconds=30)
Trainer(Model(), arguments, train_dataset=Squares(), callbacks=[callback]).train()
