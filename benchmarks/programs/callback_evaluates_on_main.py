"""A callback logs a sample's score after each 20th step: on the main process, by the Trainer's own evaluate.

truth: NO-GO
says: (?i)timed out|timeout|connection
why: evaluate gathers over all ranks; rank 0 alone calls it, while rank 1 is in the gradients of the next step.
"""

import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainerCallback, TrainingArguments


class Rows(Dataset):
    def __init__(self, length):
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return {"input_ids": torch.full((12,), index % 60 + 1), "labels": torch.tensor(index % 2)}


class Scores(TrainerCallback):
    trainer = None

    def on_step_end(self, args, state, control, **_):
        if state.is_world_process_zero and state.global_step % 20 == 0:
            print(self.trainer.evaluate())


size = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
model = BertForSequenceClassification(BertConfig(vocab_size=64, max_position_embeddings=32, **size))
arguments = TrainingArguments("out", per_device_train_batch_size=4, num_train_epochs=1, report_to=[])
trainer = Trainer(model, arguments, train_dataset=Rows(240), eval_dataset=Rows(16))
scores = Scores()
scores.trainer = trainer
trainer.add_callback(scores)
trainer.train()
