"""A Trainer with a collator that reads a column which the model does not take, and batches of similar length.

truth: GO
why: remove_unused_columns is off, and the collator keeps only what the model's forward takes.
"""

import torch
from datasets import Dataset
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments


def collated(rows):
    longest = max(row["length"] for row in rows)
    words = torch.zeros(len(rows), longest, dtype=torch.long)
    mask = torch.zeros_like(words)
    for at, row in enumerate(rows):
        words[at, : row["length"]] = torch.tensor(row["words"])
        mask[at, : row["length"]] = 1
    return {"input_ids": words, "attention_mask": mask, "labels": words.masked_fill(mask == 0, -100)}


class BySize(torch.utils.data.Sampler):
    def __init__(self, lengths):
        self.order = sorted(range(len(lengths)), key=lambda at: lengths[at])

    def __len__(self):
        return len(self.order)

    def __iter__(self):
        return iter(self.order)


class Sorted(Trainer):
    def _get_train_sampler(self, *args):
        return BySize(self.train_dataset["length"])


lengths = [4 + 7 * at % 11 for at in range(48)]
data = Dataset.from_dict({"words": [[1 + at % 30] * length for at, length in enumerate(lengths)], "length": lengths})
sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
model = LlamaForCausalLM(LlamaConfig(vocab_size=32, **sizes))
arguments = TrainingArguments(
    "out", per_device_train_batch_size=2, num_train_epochs=1, remove_unused_columns=False, report_to=[],
    gradient_checkpointing=True, gradient_checkpointing_kwargs={"use_reentrant": False}, save_strategy="no",
    eval_strategy="epoch", per_device_eval_batch_size=3,
)  # fmt: skip
trainer = Sorted(model, arguments, train_dataset=data, eval_dataset=data.select(range(10)), data_collator=collated)
trainer.train()
trainer.save_model("last")
