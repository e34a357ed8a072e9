"""Full fine-tuning of a causal language model with the Trainer."""

import logging
from dataclasses import dataclass, field

import torch
from datasets import load_dataset
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForLanguageModeling,
    HfArgumentParser,
    Trainer,
    TrainingArguments,
    set_seed,
)
from transformers.trainer_utils import get_last_checkpoint

logger = logging.getLogger(__name__)


@dataclass
class ModelArguments:
    model_name_or_path: str = field(metadata={"help": "Model folder or hub name."})
    attn_implementation: str = field(default="sdpa")


@dataclass
class DataArguments:
    train_file: str = field(metadata={"help": "JSON lines with a text column."})
    validation_file: str = field(default=None)
    block_size: int = field(default=2048)


def main():
    parser = HfArgumentParser((ModelArguments, DataArguments, TrainingArguments))
    model_args, data_args, training_args = parser.parse_args_into_dataclasses()
    logging.basicConfig(level=logging.INFO if training_args.process_index == 0 else logging.WARNING)
    set_seed(training_args.seed)

    tokenizer = AutoTokenizer.from_pretrained(model_args.model_name_or_path)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    model = AutoModelForCausalLM.from_pretrained(
        model_args.model_name_or_path,
        torch_dtype=torch.bfloat16 if training_args.bf16 else torch.float32,
        attn_implementation=model_args.attn_implementation,
    )
    model.config.use_cache = False

    files = {"train": data_args.train_file}
    if data_args.validation_file:
        files["validation"] = data_args.validation_file
    raw = load_dataset("json", data_files=files)

    def tokenize(batch):
        return tokenizer(batch["text"], truncation=True, max_length=data_args.block_size)

    with training_args.main_process_first(desc="tokenizing"):
        tokenized = raw.map(tokenize, batched=True, remove_columns=raw["train"].column_names)

    trainer = Trainer(
        model=model,
        args=training_args,
        train_dataset=tokenized["train"],
        eval_dataset=tokenized.get("validation"),
        data_collator=DataCollatorForLanguageModeling(tokenizer, mlm=False),
        processing_class=tokenizer,
    )
    last = get_last_checkpoint(training_args.output_dir)
    result = trainer.train(resume_from_checkpoint=last)
    trainer.save_model()
    trainer.log_metrics("train", result.metrics)
    trainer.save_state()


if __name__ == "__main__":
    main()
