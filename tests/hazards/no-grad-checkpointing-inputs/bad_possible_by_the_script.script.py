model = get_peft_model(base_model, LoraConfig(r=8))
trainer = Trainer(model=model, args=TrainingArguments("out", gradient_checkpointing=True))
