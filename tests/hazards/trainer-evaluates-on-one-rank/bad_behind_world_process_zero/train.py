from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

trainer = Trainer(
    model=AutoModelForCausalLM.from_pretrained("model"),
    args=TrainingArguments("out", bf16=True),
    train_dataset=rows("train"),
    eval_dataset=rows("eval"),
)
trainer.train()
if trainer.is_world_process_zero():
    metrics = trainer.evaluate()
    print(metrics)
