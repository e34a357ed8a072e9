"""A callback of the Trainer compares the logits of its first batch with those of its last when training ends.

truth: NO-GO
says: must match the size
why: the first batch has 8 rows, the last 2.
"""

import torch
from torch.utils.data import DataLoader, Dataset, default_collate
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

    def logits(self, model, place):
        batches = list(DataLoader(Rows(18), batch_size=8, collate_fn=default_collate))
        with torch.no_grad():
            return model(input_ids=batches[place]["input_ids"].to(model.device)).logits

    def on_train_begin(self, args, state, control, model=None, **others):
        self.first = self.logits(model, 0)

    def on_train_end(self, args, state, control, model=None, **others):
        last = self.logits(model, -1)
        print("drift", (last - self.first).abs().mean().item())


size = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
config = BertConfig(vocab_size=64, max_position_embeddings=32, **size)
arguments = TrainingArguments(
    "out", per_device_train_batch_size=4, num_train_epochs=2, save_strategy="no", report_to=[]
)
trainer = Trainer(BertForSequenceClassification(config), arguments, train_dataset=Rows(160), callbacks=[Drift()])
trainer.train()
