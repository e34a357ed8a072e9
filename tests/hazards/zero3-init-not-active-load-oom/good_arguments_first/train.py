import torch
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
from data import load

args = TrainingArguments(output_dir="out", bf16=True, deepspeed="ds_config.json")
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-32B", torch_dtype=torch.bfloat16)
Trainer(model=model, args=args, train_dataset=load()).train()
