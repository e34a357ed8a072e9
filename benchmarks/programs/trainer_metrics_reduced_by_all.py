"""compute_metrics sums its counts over all ranks, the labels have a name of their own, a callback ends the training.

truth: GO
why: the Trainer calls compute_metrics and its callbacks on every rank, and the callback decides by the step alone.
"""

import torch
import torch.distributed as dist
from torch.utils.data import Dataset
from transformers import Trainer, TrainerCallback, TrainingArguments


class Rows(Dataset):
    def __len__(self):
        return 32

    def __getitem__(self, index):
        return {"row": torch.full((8,), index / 32), "targets": torch.tensor(index % 4)}


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.head = torch.nn.Linear(8, 4)

    def forward(self, row, targets=None):
        logits = self.head(row)
        loss = None if targets is None else torch.nn.functional.cross_entropy(logits, targets)
        return {"loss": loss, "logits": logits}


class Enough(TrainerCallback):
    def on_step_end(self, args, state, control, **_):
        if state.global_step >= 6:
            control.should_training_stop = True
        return control


def compute_metrics(prediction):
    right = torch.tensor(float((prediction.predictions.argmax(-1) == prediction.label_ids).sum()))
    every = [None] * dist.get_world_size()
    dist.all_gather_object(every, right.item())
    return {"right": sum(every) / dist.get_world_size()}


arguments = TrainingArguments(
    "out",
    per_device_train_batch_size=4,
    num_train_epochs=3,
    eval_strategy="steps",
    eval_steps=3,
    save_steps=3,
    load_best_model_at_end=True,
    label_names=["targets"],
    remove_unused_columns=False,
    report_to=[],
)
trainer = Trainer(
    Model(), arguments, train_dataset=Rows(), eval_dataset=Rows(), compute_metrics=compute_metrics, callbacks=[Enough()]
)
trainer.train()
assert "eval_loss" in trainer.evaluate()
