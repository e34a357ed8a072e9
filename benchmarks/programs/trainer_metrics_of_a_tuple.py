"""The Trainer evaluates a model that gives hidden states too; compute_metrics takes the predictions for the logits.

truth: NO-GO
says: has no attribute 'argmax'
why: predictions is a tuple of the logits and the hidden states.
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
    labels = prediction.label_ids
    return {"accuracy": (prediction.predictions.argmax(-1) == labels).mean()}


size = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
config = BertConfig(vocab_size=64, max_position_embeddings=32, output_hidden_states=True, **size)
arguments = TrainingArguments(
    "out", per_device_train_batch_size=4, num_train_epochs=3, eval_strategy="epoch", save_strategy="no", report_to=[]
)
model = BertForSequenceClassification(config)
Trainer(model, arguments, train_dataset=Rows(), eval_dataset=Rows(), compute_metrics=compute_metrics).train()
