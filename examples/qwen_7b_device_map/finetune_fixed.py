"""Fine-tune Qwen1.5-7B-Chat, all parameters."""

import json
from dataclasses import dataclass, field

import torch
import transformers
from torch.utils.data import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer

IGNORE_TOKEN_ID = -100


@dataclass
class ModelArguments:
    model_name_or_path: str = field(default="Qwen/Qwen1.5-7B-Chat")


@dataclass
class DataArguments:
    data_path: str = field(default=None, metadata={"help": "Path to the training data."})
    eval_data_path: str = field(default=None, metadata={"help": "Path to the evaluation data."})


@dataclass
class TrainingArguments(transformers.TrainingArguments):
    model_max_length: int = field(default=2048)


class SupervisedDataset(Dataset):
    """Conversations in ChatML, padded to one length."""

    def __init__(self, path, tokenizer, max_len):
        with open(path, encoding="utf-8") as f:
            self.samples = [self.preprocess(json.loads(line), tokenizer, max_len) for line in f]

    @staticmethod
    def preprocess(row, tokenizer, max_len):
        input_ids, labels = [], []
        for turn in row["conversations"]:
            prompt = tokenizer(f"<|im_start|>{turn['from']}\n").input_ids
            text = tokenizer(f"{turn['value']}<|im_end|>\n").input_ids
            input_ids += prompt + text
            labels += [IGNORE_TOKEN_ID] * len(prompt)
            labels += text if turn["from"] == "assistant" else [IGNORE_TOKEN_ID] * len(text)
        input_ids += [tokenizer.pad_token_id] * (max_len - len(input_ids))
        labels += [IGNORE_TOKEN_ID] * (max_len - len(labels))
        input_ids = torch.tensor(input_ids[:max_len])
        return {
            "input_ids": input_ids,
            "labels": torch.tensor(labels[:max_len]),
            "attention_mask": input_ids.ne(tokenizer.pad_token_id),
        }

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, i):
        return self.samples[i]


def train():
    parser = transformers.HfArgumentParser((ModelArguments, DataArguments, TrainingArguments))
    model_args, data_args, training_args = parser.parse_args_into_dataclasses()

    model = AutoModelForCausalLM.from_pretrained(
        model_args.model_name_or_path,
        dtype=torch.bfloat16,
    )
    model.config.use_cache = False
    tokenizer = AutoTokenizer.from_pretrained(model_args.model_name_or_path, padding_side="right")

    trainer = Trainer(
        model=model,
        processing_class=tokenizer,
        args=training_args,
        train_dataset=SupervisedDataset(data_args.data_path, tokenizer, training_args.model_max_length),
        eval_dataset=SupervisedDataset(data_args.eval_data_path, tokenizer, training_args.model_max_length),
    )
    trainer.train()
    trainer.save_state()
    trainer.save_model()


if __name__ == "__main__":
    train()
