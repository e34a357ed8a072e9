from transformers import Trainer, TrainingArguments

from parts import dataset, model

args = TrainingArguments(output_dir="out", gradient_acumulation_steps=8)
Trainer(model=model, args=args, train_dataset=dataset).train()
