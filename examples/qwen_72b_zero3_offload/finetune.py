"""Supervised fine-tuning of Qwen2-72B-Instruct, all parameters."""

import json
from dataclasses import dataclass, field

import torch
import transformers
from torch.utils.data import Dataset
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, Trainer

IGNORE_TOKEN_ID = -100
SYSTEM = "You are a helpful assistant."


@dataclass
class ModelArguments:
    model_name_or_path: str = field(default="Qwen/Qwen2-72B-Instruct")


@dataclass
class DataArguments:
    data_path: str = field(metadata={"help": "A jsonl file, one conversation a line."})


@dataclass
class TrainingArguments(transformers.TrainingArguments):
    optim: str = field(default="adamw_torch")
    model_max_length: int = field(default=4096, metadata={"help": "Sequences are padded and cut to this length."})


def encode(messages, tokenizer, max_length):
    """ChatML; only what the assistant says is learned."""
    input_ids, labels = [], []
    for message in [{"role": "system", "content": SYSTEM}, *messages]:
        head = tokenizer(f"<|im_start|>{message['role']}\n").input_ids
        body = tokenizer(f"{message['content']}<|im_end|>\n").input_ids
        input_ids += head + body
        learned = body if message["role"] == "assistant" else [IGNORE_TOKEN_ID] * len(body)
        labels += [IGNORE_TOKEN_ID] * len(head) + learned
    padding = max(0, max_length - len(input_ids))
    input_ids = input_ids[:max_length] + [tokenizer.pad_token_id] * padding
    labels = labels[:max_length] + [IGNORE_TOKEN_ID] * padding
    attention_mask = [1] * (max_length - padding) + [0] * padding
    return {
        "input_ids": torch.tensor(input_ids),
        "labels": torch.tensor(labels),
        "attention_mask": torch.tensor(attention_mask),
    }


class LazySupervisedDataset(Dataset):
    def __init__(self, path, tokenizer, max_length):
        with open(path, encoding="utf-8") as lines:
            self.rows = [json.loads(line) for line in lines]
        self.tokenizer = tokenizer
        self.max_length = max_length

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return encode(self.rows[index]["messages"], self.tokenizer, self.max_length)


def train():
    parser = transformers.HfArgumentParser((ModelArguments, DataArguments, TrainingArguments))
    model_args, data_args, training_args = parser.parse_args_into_dataclasses()

    config = AutoConfig.from_pretrained(model_args.model_name_or_path)
    config.use_cache = False
    model = AutoModelForCausalLM.from_pretrained(
        model_args.model_name_or_path,
        config=config,
        dtype=torch.bfloat16 if training_args.bf16 else None,
    )
    tokenizer = AutoTokenizer.from_pretrained(
        model_args.model_name_or_path, model_max_length=training_args.model_max_length, padding_side="right"
    )

    trainer = Trainer(
        model=model,
        processing_class=tokenizer,
        args=training_args,
        train_dataset=LazySupervisedDataset(data_args.data_path, tokenizer, training_args.model_max_length),
    )
    trainer.train()
    trainer.save_state()
    trainer.save_model(training_args.output_dir)


if __name__ == "__main__":
    train()
