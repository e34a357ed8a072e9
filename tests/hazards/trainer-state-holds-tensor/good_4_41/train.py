from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

args = TrainingArguments(output_dir="out", deepspeed="ds.json", bf16=True)
trainer = Trainer(model=AutoModelForCausalLM.from_pretrained("gpt2"), args=args, train_dataset=[])
trainer.train()
