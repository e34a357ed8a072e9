"""A callback of the Trainer compares the first evaluation's logits with the last's when training ends.

truth: NO-GO
says: must match the size
why: the callback keeps logits of a batch of 8 at first and of the last batch of 2 at the end.
"""

import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainerCallback, TrainingArguments


class Rows(Dataset):
    def __init__(self, number):
        self.number = number

    def __len__(self):
        return self.number

    def __getitem__(self, index):
        return {"input_ids": torch.full((12,), index % 60 + 1), "labels": torch.tensor(index % 2)}


class Drift(TrainerCallback):
    """How far the logits of a batch have moved from the beginning to the end."""

    def __init__(self):
        self.first = None

    def logits(self, model, loader, place):
        batches = list(loader)
        with torch.no_grad():
            return model(input_ids=batches[place]["input_ids"].to(model.device)).logits

    def on_train_begin(self, args, state, control, model=None, eval_dataloader=None, **others):
        self.first = self.logits(model, trainer.get_eval_dataloader(), 0)

    def on_train_end(self, args, state, control, model=None, **others):
        last = self.logits(model, trainer.get_eval_dataloader(), -1)
        print("drift", (last - self.first).abs().mean().item())


size = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
config = BertConfig(vocab_size=64, max_position_embeddings=32, **size)
arguments = TrainingArguments(
    "out",
    per_device_train_batch_size=4,
    per_device_eval_batch_size=8,
    num_train_epochs=2,
    save_strategy="no",
    report_to=[],
)
trainer = Trainer(
    BertForSequenceClassification(config),
    arguments,
    train_dataset=Rows(160),
    eval_dataset=Rows(20),
    callbacks=[Drift()],
)
trainer.train()
