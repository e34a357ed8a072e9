import transformers
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

parser = transformers.HfArgumentParser(TrainingArguments)
(args,) = parser.parse_args_into_dataclasses()
model = AutoModelForCausalLM.from_pretrained("/models/Llama-2-7b")
trainer = Trainer(model=model, args=args, train_dataset=rows())
trainer.train()
