import os
import pathlib
from dataclasses import dataclass, field
from typing import Optional

import torch
import transformers
from data import make_data
from peft import LoraConfig, get_peft_model
from transformers import Trainer

local_rank = None


def rank0_print(*values):
    if local_rank == 0:
        print(*values)


@dataclass
class ModelArguments:
    model_name_or_path: Optional[str] = field(default="facebook/opt-125m")


@dataclass
class DataArguments:
    data_path: str = field(default=None)


@dataclass
class TrainingArguments(transformers.TrainingArguments):
    cache_dir: Optional[str] = field(default=None)
    optim: str = field(default="adamw_torch")
    model_max_length: int = field(default=512)
    lora_enable: bool = False
    lora_r: int = 128
    lora_alpha: int = 256


def train():
    global local_rank
    parser = transformers.HfArgumentParser((ModelArguments, DataArguments, TrainingArguments))
    model_args, data_args, training_args = parser.parse_args_into_dataclasses()
    local_rank = training_args.local_rank

    model = transformers.LlamaForCausalLM.from_pretrained(
        model_args.model_name_or_path, cache_dir=training_args.cache_dir
    )
    model.config.use_cache = False
    if training_args.gradient_checkpointing:
        if hasattr(model, "enable_input_require_grads"):
            model.enable_input_require_grads()
    if training_args.lora_enable:
        if training_args.bf16:
            model.to(torch.bfloat16)
        rank0_print("adding adapters")
        model = get_peft_model(
            model,
            LoraConfig(
                r=training_args.lora_r,
                lora_alpha=training_args.lora_alpha,
                target_modules=["q_proj", "v_proj"],
                lora_dropout=0.05,
                task_type="CAUSAL_LM",
            ),
        )
    tokenizer = transformers.AutoTokenizer.from_pretrained(
        model_args.model_name_or_path,
        cache_dir=training_args.cache_dir,
        model_max_length=training_args.model_max_length,
        padding_side="right",
        use_fast=False,
    )
    tokenizer.pad_token = tokenizer.unk_token
    trainer = Trainer(model=model, tokenizer=tokenizer, args=training_args, **make_data(tokenizer, data_args.data_path))
    if list(pathlib.Path(training_args.output_dir).glob("checkpoint-*")):
        trainer.train(resume_from_checkpoint=True)
    else:
        trainer.train()
    trainer.save_state()
    model.config.use_cache = True
    if training_args.local_rank in (0, -1):
        model.config.save_pretrained(training_args.output_dir)
        model.save_pretrained(training_args.output_dir)
        torch.save({"done": True}, os.path.join(training_args.output_dir, "done.bin"))


if __name__ == "__main__":
    train()
