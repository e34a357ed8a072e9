from transformers import TrainingArguments
from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer

(arguments,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-7B")
Trainer(model=model, args=arguments).train()
