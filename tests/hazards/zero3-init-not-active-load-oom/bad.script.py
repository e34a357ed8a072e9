model = AutoModelForCausalLM.from_pretrained(path)
args = TrainingArguments(output_dir="out", deepspeed="ds_zero3.json")
trainer = Trainer(model=model, args=args)
