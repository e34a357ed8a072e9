"""The best model is to be chosen by its loss, of a model whose labels are called targets, which nobody says.

truth: NO-GO
says: KeyError.*eval_loss|not found in the evaluation metrics
why: without label_names the Trainer computes no evaluation loss, and the first save asks for eval_loss.
"""

import torch
from torch.utils.data import Dataset
from transformers import Trainer, TrainingArguments


class Rows(Dataset):
    def __len__(self):
        return 32

    def __getitem__(self, index):
        return {"row": torch.full((8,), index / 32), "targets": torch.tensor(index % 4)}


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.head = torch.nn.Linear(8, 4)

    def forward(self, row, **others):
        logits = self.head(row)
        loss = torch.nn.functional.cross_entropy(logits, others["targets"])
        return {"loss": loss, "logits": logits}


arguments = TrainingArguments(
    "out",
    per_device_train_batch_size=4,
    num_train_epochs=3,
    eval_strategy="epoch",
    save_strategy="epoch",
    load_best_model_at_end=True,
    remove_unused_columns=False,
    report_to=[],
)
trainer = Trainer(Model(), arguments, train_dataset=Rows(), eval_dataset=Rows())
trainer.train()
