from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments

from data import load

parser = HfArgumentParser(TrainingArguments)
(args,) = parser.parse_args_into_dataclasses()
model = AutoModelForCausalLM.from_pretrained(args.model_name_or_path)
Trainer(model=model, args=args, train_dataset=load()).train()
