"""A Trainer whose collator reads a column that the model's forward does not take.

truth: NO-GO
says: KeyError: 'length'
why: a Trainer removes the columns that the model does not take, unless it is told not to.
"""

import torch
from datasets import Dataset
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments


def collated(rows):
    longest = max(row["length"] for row in rows)
    words = torch.zeros(len(rows), longest, dtype=torch.long)
    for at, row in enumerate(rows):
        words[at, : row["length"]] = torch.tensor(row["input_ids"])
    return {"input_ids": words, "labels": words.masked_fill(words == 0, -100)}


lengths = [4 + 7 * at % 11 for at in range(48)]
words = [[1 + at % 30] * length for at, length in enumerate(lengths)]
data = Dataset.from_dict({"input_ids": words, "length": lengths})
sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
model = LlamaForCausalLM(LlamaConfig(vocab_size=32, **sizes))
arguments = TrainingArguments(
    "out", per_device_train_batch_size=2, num_train_epochs=1, report_to=[], save_strategy="no"
)
Trainer(model, arguments, train_dataset=data, data_collator=collated).train()
