from transformers import Trainer, TrainingArguments

from parts import dataset, model, tokenizer

args = TrainingArguments(
    output_dir="out",
    eval_strategy="epoch",
    per_device_train_batch_size=4,
)
trainer = Trainer(model=model, args=args, train_dataset=dataset, eval_dataset=dataset, processing_class=tokenizer)
trainer.train()
