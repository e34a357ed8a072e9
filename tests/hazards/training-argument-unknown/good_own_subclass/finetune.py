from dataclasses import dataclass

from transformers import Trainer, TrainingArguments

from parts import dataset, model


@dataclass
class Arguments(TrainingArguments):
    alpha: float = 0.5


args = Arguments(output_dir="out", alpha=0.1)
Trainer(model=model, args=args, train_dataset=dataset).train()
