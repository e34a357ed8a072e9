"""The Trainer with evaluation, accuracy and the best model loaded at the end.

truth: GO
why: both strategies are "epoch", and the metrics are of the logits.
"""

import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments


class Rows(Dataset):
    def __len__(self):
        return 32

    def __getitem__(self, index):
        return {"input_ids": torch.full((12,), index + 1), "labels": torch.tensor(index % 2)}


def compute_metrics(prediction):
    return {"accuracy": float((prediction.predictions.argmax(-1) == prediction.label_ids).mean())}


size = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
config = BertConfig(vocab_size=64, max_position_embeddings=32, **size)
arguments = TrainingArguments(
    "out",
    per_device_train_batch_size=4,
    num_train_epochs=3,
    eval_strategy="epoch",
    save_strategy="epoch",
    load_best_model_at_end=True,
    metric_for_best_model="accuracy",
    report_to=[],
)
trainer = Trainer(
    BertForSequenceClassification(config),
    arguments,
    train_dataset=Rows(),
    eval_dataset=Rows(),
    compute_metrics=compute_metrics,
)
trainer.train()
trainer.save_model("final")
