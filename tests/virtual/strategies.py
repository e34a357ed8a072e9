"""What the programs of the tests of strategies have in common: a small model, and transformers' Trainer."""

from __future__ import annotations

TRAINER = """
import os
import torch
from torch import nn
from transformers import (
    AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig, Qwen2Config, Trainer, TrainingArguments,
)
from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training

def config(**changes):
    return Qwen2Config(**{**dict(
        hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        vocab_size=1024, use_cache=False, architectures=["Qwen2ForCausalLM"]), **changes})

def model(settings=None, **options):
    return AutoModelForCausalLM.from_config(settings or config(), **options)

def folder():
    config().save_pretrained("model")
    return "model"

class Tokens(torch.utils.data.Dataset):
    def __len__(self):
        return 256
    def __getitem__(self, index):
        tokens = torch.arange(index, index + 64) % 1024
        return {"input_ids": tokens, "labels": tokens.clone(), "attention_mask": torch.ones_like(tokens)}

def train(model, deepspeed=None, **options):
    options = {"bf16": True, "per_device_train_batch_size": 2, **options}
    arguments = TrainingArguments(output_dir="out", max_steps=2, report_to=[], save_strategy="no",
                                  deepspeed=deepspeed, **options)
    trainer = Trainer(model=model, args=arguments, train_dataset=Tokens())
    trainer.train()
    return trainer

def zero(stage, optimizer=None, parameters=None, **options):
    section = {"stage": stage, **options.pop("zero", {})}
    for name, device in (("offload_optimizer", optimizer), ("offload_param", parameters)):
        if device:
            section[name] = {"device": device, "pin_memory": True, "nvme_path": "/nvme"}
    return {"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto",
            "gradient_clipping": 1.0, "bf16": {"enabled": "auto"}, "fp16": {"enabled": "auto"},
            "zero_optimization": section, **options}

def with_lora(model, **options):
    return get_peft_model(model, LoraConfig(r=8, target_modules=["q_proj", "v_proj", "down_proj"],
                                            task_type="CAUSAL_LM", **options))
"""
