import torch
from transformers import Trainer, TrainingArguments

from resampler import Resampler

Trainer(Resampler(64), TrainingArguments("out"), train_dataset=rows()).train()
