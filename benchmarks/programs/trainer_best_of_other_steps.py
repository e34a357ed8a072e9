"""The best model is to be loaded at the end; it is evaluated every 10 steps and saved every 15.

truth: NO-GO
says: round multiple of the evaluation steps
why: a save at step 15 has no evaluation beside it: the arguments refuse it.
"""

import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments


class Rows(Dataset):
    def __init__(self, number):
        self.number = number

    def __len__(self):
        return self.number

    def __getitem__(self, index):
        return {"input_ids": torch.full((12,), index % 60 + 1), "labels": torch.tensor(index % 2)}


size = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
config = BertConfig(vocab_size=64, max_position_embeddings=32, **size)
schedule = {"eval_strategy": "steps", "eval_steps": 10, "save_strategy": "steps", "save_steps": 15}
arguments = TrainingArguments(
    "out", per_device_train_batch_size=4, max_steps=40, load_best_model_at_end=True, report_to=[], **schedule
)
trainer = Trainer(BertForSequenceClassification(config), arguments, train_dataset=Rows(400), eval_dataset=Rows(18))
trainer.train()
