import json
from dataclasses import dataclass, field
from typing import List, Optional

import torch
import transformers
from deepspeed import zero
from deepspeed.runtime.zero.partition_parameters import ZeroParamStatus
from peft import LoraConfig, get_peft_model
from torch.utils.data import Dataset


@dataclass
class ModelArguments:
    model_name_or_path: Optional[str] = field(default="Qwen/Qwen2.5-7B")


@dataclass
class DataArguments:
    data_path: str = field(default=None)


@dataclass
class TrainingArguments(transformers.TrainingArguments):
    optim: str = field(default="adamw_torch")
    model_max_length: int = field(default=2048)
    use_lora: bool = False


@dataclass
class LoraArguments:
    lora_r: int = 64
    lora_alpha: int = 16
    lora_dropout: float = 0.05
    lora_target_modules: List[str] = field(
        default_factory=lambda: ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    )


def gathered(parameter):
    if hasattr(parameter, "ds_id"):
        assert parameter.ds_status == ZeroParamStatus.NOT_AVAILABLE
        with zero.GatheredParameters([parameter]):
            return parameter.data.detach().cpu().clone()
    return parameter.detach().cpu().clone()


def adapter_state(named_parameters):
    return {name: gathered(parameter) for name, parameter in named_parameters if "lora_" in name}


class Conversations(Dataset):
    def __init__(self, rows, tokenizer, longest):
        self.rows = rows
        self.tokenizer = tokenizer
        self.longest = longest

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        text = self.tokenizer.apply_chat_template(self.rows[index]["messages"], tokenize=False)
        ids = self.tokenizer(
            text, padding="max_length", truncation=True, max_length=self.longest, return_tensors="pt"
        ).input_ids[0]
        labels = ids.clone()
        labels[ids == self.tokenizer.pad_token_id] = -100
        return {"input_ids": ids, "labels": labels, "attention_mask": ids.ne(self.tokenizer.pad_token_id)}


def train():
    parser = transformers.HfArgumentParser((ModelArguments, DataArguments, TrainingArguments, LoraArguments))
    model_args, data_args, training_args, lora_args = parser.parse_args_into_dataclasses()

    tokenizer = transformers.AutoTokenizer.from_pretrained(model_args.model_name_or_path, padding_side="right")
    model = transformers.AutoModelForCausalLM.from_pretrained(model_args.model_name_or_path, torch_dtype=torch.bfloat16)
    model.config.use_cache = False
    if training_args.use_lora:
        model = get_peft_model(
            model,
            LoraConfig(
                r=lora_args.lora_r,
                lora_alpha=lora_args.lora_alpha,
                target_modules=lora_args.lora_target_modules,
                lora_dropout=lora_args.lora_dropout,
                bias="none",
                task_type="CAUSAL_LM",
            ),
        )
        model.print_trainable_parameters()
        if training_args.gradient_checkpointing:
            model.enable_input_require_grads()

    with open(data_args.data_path) as file:
        data = Conversations(json.load(file), tokenizer, training_args.model_max_length)
    trainer = transformers.Trainer(model=model, processing_class=tokenizer, args=training_args, train_dataset=data)
    trainer.train()
    trainer.save_state()
    if training_args.use_lora:
        state = adapter_state(model.named_parameters())
        if trainer.args.should_save:
            model.save_pretrained(training_args.output_dir, state_dict=state)
    else:
        trainer.save_model()


if __name__ == "__main__":
    train()
