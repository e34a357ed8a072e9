import os

import torch
from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, Trainer, TrainingArguments

model = AutoModelForCausalLM.from_pretrained(
    "/models/Llama-3.1-8B",
    quantization_config=BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_compute_dtype=torch.bfloat16),
    device_map={"": 0},
)
model = get_peft_model(prepare_model_for_kbit_training(model), LoraConfig(r=16, task_type="CAUSAL_LM"))
Trainer(model, TrainingArguments("out", bf16=True), train_dataset=rows()).train()
