import transformers
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

parser = transformers.HfArgumentParser(TrainingArguments)
(args,) = parser.parse_args_into_dataclasses()
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-7B")
trainer = Trainer(model=model, args=args, train_dataset=[])
trainer.train()
