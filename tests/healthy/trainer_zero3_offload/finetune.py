import copy
import json
from dataclasses import dataclass, field

import torch
import transformers
from torch.utils.data import Dataset
from transformers import Trainer

IGNORE = -100


@dataclass
class ModelArguments:
    model_name_or_path: str = field(default="meta-llama/Llama-2-7b-hf")


@dataclass
class DataArguments:
    data_path: str = field(default=None)


@dataclass
class TrainingArguments(transformers.TrainingArguments):
    cache_dir: str = field(default=None)
    optim: str = field(default="adamw_torch")
    model_max_length: int = field(default=512)


class Instructions(Dataset):
    def __init__(self, path, tokenizer):
        with open(path) as file:
            rows = json.load(file)
        self.samples = []
        for row in rows:
            prompt = f"### Instruction:\n{row['instruction']}\n\n### Response:\n"
            prompt_ids = tokenizer(prompt).input_ids
            ids = tokenizer(prompt + row["output"] + tokenizer.eos_token, truncation=True).input_ids
            labels = copy.deepcopy(ids)
            labels[: len(prompt_ids)] = [IGNORE] * min(len(prompt_ids), len(ids))
            self.samples.append((torch.tensor(ids), torch.tensor(labels)))

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        ids, labels = self.samples[index]
        return {"input_ids": ids, "labels": labels}


@dataclass
class Collator:
    tokenizer: transformers.PreTrainedTokenizer

    def __call__(self, samples):
        ids = torch.nn.utils.rnn.pad_sequence(
            [sample["input_ids"] for sample in samples], batch_first=True, padding_value=self.tokenizer.pad_token_id
        )
        labels = torch.nn.utils.rnn.pad_sequence(
            [sample["labels"] for sample in samples], batch_first=True, padding_value=IGNORE
        )
        return {"input_ids": ids, "labels": labels, "attention_mask": ids.ne(self.tokenizer.pad_token_id)}


def train():
    parser = transformers.HfArgumentParser((ModelArguments, DataArguments, TrainingArguments))
    model_args, data_args, training_args = parser.parse_args_into_dataclasses()

    model = transformers.AutoModelForCausalLM.from_pretrained(
        model_args.model_name_or_path, cache_dir=training_args.cache_dir, torch_dtype=torch.bfloat16
    )
    model.config.use_cache = False
    tokenizer = transformers.AutoTokenizer.from_pretrained(
        model_args.model_name_or_path,
        cache_dir=training_args.cache_dir,
        model_max_length=training_args.model_max_length,
        padding_side="right",
        use_fast=False,
    )
    tokenizer.pad_token = tokenizer.unk_token

    trainer = Trainer(
        model=model,
        args=training_args,
        train_dataset=Instructions(data_args.data_path, tokenizer),
        data_collator=Collator(tokenizer),
        processing_class=tokenizer,
    )
    trainer.train()
    trainer.save_state()
    trainer.save_model(output_dir=training_args.output_dir)


if __name__ == "__main__":
    train()
