from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments

from data import load

parser = HfArgumentParser(TrainingArguments)
(args,) = parser.parse_args_into_dataclasses()
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-7B")
Trainer(model=model, args=args, train_dataset=load()).train()
