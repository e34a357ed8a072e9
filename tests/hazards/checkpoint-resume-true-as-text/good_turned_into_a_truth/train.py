from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments

(args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
trainer = Trainer(AutoModelForCausalLM.from_pretrained("model"), args, train_dataset=rows())
trainer.train(resume_from_checkpoint=args.resume_from_checkpoint == "True")
