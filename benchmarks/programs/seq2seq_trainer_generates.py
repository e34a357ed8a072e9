"""Seq2SeqTrainer evaluates with generate, pads what it predicts, and counts exact matches in compute_metrics.

truth: GO
why: the Trainer pads the generated rows over all ranks before it gathers them, and -100 is put back to the pad token.
"""

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import Seq2SeqTrainer, Seq2SeqTrainingArguments, T5Config, T5ForConditionalGeneration


class Rows(Dataset):
    def __len__(self):
        return 16

    def __getitem__(self, index):
        row = torch.full((6,), index % 30 + 2)
        return {"input_ids": row, "attention_mask": torch.ones_like(row), "labels": row[:4]}


def compute_metrics(prediction):
    labels = np.where(prediction.label_ids == -100, 0, prediction.label_ids)
    predicted = np.where(prediction.predictions == -100, 0, prediction.predictions)
    width = min(labels.shape[1], predicted.shape[1] - 1)
    return {"exact": float((predicted[:, 1 : width + 1] == labels[:, :width]).all(-1).mean())}


size = {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2, "vocab_size": 64}
model = T5ForConditionalGeneration(T5Config(decoder_start_token_id=0, pad_token_id=0, eos_token_id=1, **size))
arguments = Seq2SeqTrainingArguments(
    "out",
    per_device_train_batch_size=4,
    per_device_eval_batch_size=4,
    num_train_epochs=2,
    eval_strategy="epoch",
    save_strategy="no",
    predict_with_generate=True,
    generation_max_length=8,
    report_to=[],
)
trainer = Seq2SeqTrainer(model, arguments, train_dataset=Rows(), eval_dataset=Rows(), compute_metrics=compute_metrics)
trainer.train()
assert "eval_exact" in trainer.evaluate()
trainer.save_model("final")
